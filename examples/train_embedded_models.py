"""Train the two models that come with the package, and write them as it ships them.

    python examples/train_embedded_models.py [FOLDER]

takes about two minutes. Without FOLDER the models in the package are replaced. One thread and
fixed seeds: the same machine with the same packages writes the same bytes again.

The transformer reads `training.txt` and is judged on `held_out.txt`, both in its folder: the first
nine tenths and the last tenth of this project's LICENSE and of five pages of docs/ as they were
when the models were made. They are kept so that later edits do not change the model. The
convolutional network learns scikit-learn's digits, which needs `pip install 'rankscope[dev]'`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from rankscope.auditing.embedded import EMBEDDED_MODELS, embedded_model
from rankscope.files import write_atomically
from rankscope.networks.image import DigitsNetwork
from rankscope.networks.language import SmallGPT, to_gpt2

SEED = 0
CONTEXT = 64  # characters that the transformer sees
NUM_TRAINING_IMAGES = 1437  # of 1797; the others are for testing
_DEPTH, _WIDTH, _HEADS = 4, 48, 4
_FIRST_DEVIATION = 0.1  # of the transformer's weights; larger than usual, as the width is small


def text_tokens(file: str, characters: str) -> Tensor:
    """A text of the package as numbers of characters."""
    text = (embedded_model("transformer") / file).read_text(encoding="utf-8")
    return torch.tensor([characters.index(character) for character in text])


def windows(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Characters (window, place) and those that follow them; what fills no window is left out."""
    cut = tokens.unfold(0, CONTEXT + 1, CONTEXT)
    return cut[:, :-1], cut[:, 1:]


def model_loss(model: SmallGPT, tokens: Tensor) -> float:
    """Nats per character; each window begins without a past."""
    inputs, targets = windows(tokens)
    with torch.no_grad():
        return cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item()


def bigram_loss(training: Tensor, tokens: Tensor, vocabulary: int) -> float:
    """Nats per character of the best guess from one character, counted in the training text.

    A tenth is added to every count: of 1, 0.1, 0.03 and 0.01 the best on the held-out text.
    """
    pairs = training[:-1] * vocabulary + training[1:]
    counts = torch.bincount(pairs, minlength=vocabulary**2).view(vocabulary, vocabulary) + 0.1
    inputs, targets = windows(tokens)
    return cross_entropy(counts.log()[inputs].flatten(0, 1), targets.flatten()).item()


def continued(model: SmallGPT, tokens: Tensor, *, length: int) -> Tensor:
    """The tokens, and what the model writes after them."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for _ in range(length):
            chances = (model(tokens[None, -CONTEXT:])[0, -1] / 0.5).softmax(dim=-1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)])
    return tokens


def train_transformer(folder: Path, *, num_steps: int) -> None:
    """Write `config.json`, `vocab.json`, `model.safetensors` and `manifest.json`."""
    files = [embedded_model("transformer") / name for name in ("training.txt", "held_out.txt")]
    characters = "".join(sorted(set("".join(file.read_text(encoding="utf-8") for file in files))))
    training, held_out = (text_tokens(file.name, characters) for file in files)
    config = _config(len(characters))
    model = SmallGPT(
        len(characters), num_positions=CONTEXT, width=_WIDTH, num_layers=_DEPTH, num_heads=_HEADS
    )
    _fit_transformer(model, training, num_steps)
    manifest = {
        "data": "LICENSE and docs/*.md of rankscope: training.txt, held_out.txt",
        "steps": num_steps,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "held_out_loss": round(model_loss(model, held_out), 4),
        "training_loss": round(model_loss(model, training), 4),
        "bigram_loss": round(bigram_loss(training, held_out, len(characters)), 4),
    }
    _write(folder, to_gpt2(model.state_dict()), manifest)
    _write_json(folder / "config.json", config)
    _write_json(folder / "vocab.json", {character: k for k, character in enumerate(characters)})
    story = continued(model, training[:CONTEXT], length=100)
    print("".join(characters[token] for token in story))


def _config(vocabulary: int) -> dict[str, object]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary,
        "n_positions": CONTEXT,
        "n_ctx": CONTEXT,
        "n_embd": _WIDTH,
        "n_layer": _DEPTH,
        "n_head": _HEADS,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "float32",
    }


def _fit_transformer(model: SmallGPT, training: Tensor, num_steps: int) -> None:
    generator = torch.Generator().manual_seed(SEED)
    matrices = {name: weight for name, weight in model.named_parameters() if weight.ndim == 2}
    for name, weight in matrices.items():
        # What is added to the residual begins smaller, as in GPT-2.
        is_added = name.endswith(("attention.out.weight", "narrow.weight"))
        scale = (2 * _DEPTH) ** -0.5 if is_added else 1.0
        nn.init.normal_(weight, std=_FIRST_DEVIATION * scale, generator=generator)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups: list[dict[str, Any]] = [
        {"params": list(matrices.values())},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=5e-3, betas=(0.9, 0.99), weight_decay=1.0)
    schedule = OneCycleLR(optimizer, max_lr=5e-3, total_steps=num_steps, pct_start=0.1)
    for step in range(num_steps):
        starts = torch.randint(len(training) - CONTEXT, (16, 1), generator=generator)
        batch = training[starts + torch.arange(CONTEXT + 1)]
        loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        _descend(loss, optimizer, schedule)
        if step % 200 == 0:
            print(f"step {step:4}: {loss.item():.3f} nats per character")


def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8) with values in 0..1 and their digits, shuffled by the seed.

    In scikit-learn's order the writers of the last images are others than those of the first.
    """
    from sklearn.datasets import load_digits

    images, numbers = load_digits(return_X_y=True)
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(SEED))
    pixels = torch.from_numpy(images).float().view(-1, 1, 8, 8) / 16
    return pixels[order], torch.from_numpy(numbers)[order]


def accuracy(network: DigitsNetwork, images: Tensor, numbers: Tensor) -> float:
    """Share of the images whose digit has the largest logit."""
    with torch.no_grad():
        is_right: Tensor = network(images).argmax(dim=1) == numbers
    return is_right.double().mean().item()


def train_cnn(folder: Path, *, num_epochs: int) -> None:
    """Write `model.safetensors` and `manifest.json`."""
    images, numbers = digits()
    network = DigitsNetwork()
    _fit_cnn(network, images[:NUM_TRAINING_IMAGES], numbers[:NUM_TRAINING_IMAGES], num_epochs)
    test = (images[NUM_TRAINING_IMAGES:], numbers[NUM_TRAINING_IMAGES:])
    manifest = {
        "data": "scikit-learn's digits (UCI, Alpaydin & Kaynak 1998), shuffled",
        "image": [1, 8, 8],
        "epochs": num_epochs,
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "training_images": NUM_TRAINING_IMAGES,
        "test_images": len(test[1]),
        "test_accuracy": round(accuracy(network, *test), 4),
    }
    _write(folder, network.state_dict(), manifest)


def _fit_cnn(network: DigitsNetwork, images: Tensor, numbers: Tensor, num_epochs: int) -> None:
    generator = torch.Generator().manual_seed(SEED)
    for weight in network.parameters():
        if weight.ndim > 1:
            nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(weight)
    batches_of_an_epoch = -(-len(images) // 64)
    optimizer = AdamW(network.parameters(), weight_decay=1.0)
    schedule = OneCycleLR(optimizer, max_lr=3e-3, total_steps=num_epochs * batches_of_an_epoch)
    for epoch in range(num_epochs):
        for batch in torch.split(torch.randperm(len(images), generator=generator), 64):
            loss = cross_entropy(network(images[batch]), numbers[batch])
            _descend(loss, optimizer, schedule)
        if epoch % 5 == 0:
            print(f"epoch {epoch:2}: {loss.item():.4f} nats per image")


def _descend(loss: Tensor, optimizer: Optimizer, schedule: OneCycleLR) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    schedule.step()


def _write(folder: Path, weights: dict[str, Tensor], manifest: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.safetensors", save(weights, {"format": "pt"}))
    manifest = {"script": "examples/train_embedded_models.py", "seed": SEED, **manifest}
    _write_json(folder / "manifest.json", manifest)
    print("\n".join(f"{key}: {value}" for key, value in manifest.items()))


def _write_json(path: Path, document: dict[str, object] | dict[str, int]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode())


if __name__ == "__main__":
    torch.set_num_threads(1)  # so that sums are always made in the same order
    transformer, cnn = (
        Path(sys.argv[1]) / name if len(sys.argv) > 1 else embedded_model(name)
        for name in EMBEDDED_MODELS
    )
    train_transformer(transformer, num_steps=2000)
    train_cnn(cnn, num_epochs=30)
