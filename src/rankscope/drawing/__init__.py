"""Pictures of diagrams: layout, SVG, PDF, PNG, TikZ, animations. Nothing here needs torch."""
