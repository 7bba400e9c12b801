"""What transformers computes for the small models of `tests/import/published.rs`.

    ROUNDELAY_CASES=DIR cargo test --test import published
    python benches/transformers_losses.py DIR/cases.json tests/fixtures/transformers.json

The test writes configurations and inputs of its cases; this writes the arrays that the classes save
and the losses of numbers that both draw by one formula. The test also writes `NAME/model.safetensors`
for every case, as `export` writes it; with `DIR` as a third argument `from_pretrained` must take these
for the same models.

It takes torch 2.15 and transformers 5.24.
"""

import json
import pathlib
import re
import sys

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

# The file of a folder that has one.
FILE = "model.safetensors"

# What classes make and do not read, where the head has a table of its own.
UNREAD = {"cls.predictions.bias", "lm_head.bias"}


def number(name: str, count: int) -> numpy.ndarray:
    """The first numbers of a name: multiples of 2⁻¹², at least −1/2 and below 1/2."""
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        x = numpy.uint64(digest) + numpy.arange(count, dtype=numpy.uint64)
        x *= numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> numpy.uint64(31))) >> numpy.uint64(52)
    return x.astype(numpy.float64) / 4096 - 0.5


def array(name: str, shape: list[int], is_less: bool) -> torch.Tensor:
    is_gain = len(shape) == 1 and name.endswith("weight")
    numbers = number(name, int(numpy.prod(shape))) + (1 if is_gain and not is_less else 0)
    return torch.tensor(numbers).reshape(shape)


def of_class(config: dict) -> type:
    (name,) = config["architectures"]
    return getattr(transformers, name)


def saved(config: dict, folder: pathlib.Path) -> dict[str, list[int]]:
    """The arrays that a new model saves."""
    own = transformers.AutoConfig.for_model(**config)
    of_class(config)(own).save_pretrained(folder)
    with safe_open(folder / FILE, "pt") as file:
        return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}


def loaded(config: dict, folder: pathlib.Path) -> torch.nn.Module:
    """The model of a folder in 64 bits; every array is one of the class, and every one is there."""
    model, told = of_class(config).from_pretrained(
        folder,
        dtype=torch.float64,
        attn_implementation="eager",
        output_loading_info=True,
    )
    wrong = {name for names in told.values() for name in names} - UNREAD
    assert not wrong, f"{folder}: {wrong}"
    return model.eval()


def loss(model: torch.nn.Module, inputs: list[dict]) -> float:
    given = {}
    for own in inputs:
        numbers = number(own["name"], int(numpy.prod(own["shape"])))
        if own["bound"]:
            numbers = numpy.floor((numbers + 0.5) * own["bound"]).astype(numpy.int64)
        given[own["name"]] = torch.tensor(numbers).reshape(own["shape"])
    targets = given.pop("targets")
    names = {"tokens": "input_ids", "types": "token_type_ids", "images": "pixel_values"}
    if "images" in given:
        given["images"] = given["images"].permute(0, 3, 1, 2)
    given = {names[name]: value for name, value in given.items()}
    if "roberta" in model.config.model_type:
        # Positions begin behind that of padding; the class counts them by tokens that are none.
        length = given["input_ids"].shape[1]
        given["position_ids"] = model.config.pad_token_id + 1 + torch.arange(length)[None]
    logits = model(**given).logits
    logits, targets = logits.flatten(0, -2).double(), targets.flatten()
    # A target that is no class stands for one that does not count.
    targets = targets.masked_fill(targets == logits.shape[-1], -100)
    return torch.nn.functional.cross_entropy(logits, targets).item()


def spelled(found: dict) -> str:
    """JSON with every shape on one line."""
    shape = re.compile(r"\[[^\[\]]*\]")
    text = json.dumps(found, indent=1)
    return shape.sub(lambda own: json.dumps(json.loads(own[0])), text) + "\n"


def main(cases: str, output: str, back: str | None = None) -> None:
    found = {}
    scratch = pathlib.Path(cases).parent / "saved"
    for case in json.loads(pathlib.Path(cases).read_text()):
        config, name = case["config"], case["name"]
        # Some tokens of padding lie beyond the small vocabularies.
        if (config.get("pad_token_id") or 0) >= config.get("vocab_size", 1):
            config = dict(config, pad_token_id=None)
        shapes = saved(config, scratch)
        is_less = config["model_type"].startswith("gemma")
        arrays = {name: array(name, shape, is_less) for name, shape in shapes.items()}
        arrays = {name: own.float().contiguous() for name, own in arrays.items()}
        save_file(arrays, scratch / FILE, {"format": "pt"})
        model = loaded(config, scratch)
        found[name] = {"arrays": shapes, "loss": loss(model, case["inputs"])}
        print(f"{name}: {found[name]['loss']:.6f}")
        if back:
            folder = pathlib.Path(back) / name
            (folder / "config.json").write_text(json.dumps(config))
            again = loaded(config, folder).state_dict()
            for key, own in model.state_dict().items():
                assert key in UNREAD or torch.equal(own, again[key]), f"{name}: {key}"
    pathlib.Path(output).write_text(spelled(found))


main(*sys.argv[1:])
