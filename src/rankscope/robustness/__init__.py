"""How far a perturbation carries: true operator norms, Lipschitz bounds, certificates, attacks."""
