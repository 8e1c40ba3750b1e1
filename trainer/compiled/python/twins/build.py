"""Builds the twin of the model in a step description."""

import torch

from . import radio_unet, transformer, world_model


def columns(description, field):
    """Returns the size of the last dimension of a field."""
    return next(f["shape"][-1] for f in description["fields"] if f["name"] == field)


def build_world_model(spec, description):
    return world_model.WorldModel(
        columns(description, "observation"), columns(description, "action"), spec["hidden_size"],
        spec["latent_size"], spec["dynamics"] == "WORLD_MODEL_DYNAMICS_GRU",
        spec["ensemble_size"])


def build_transformer(spec, description):
    return transformer.Transformer(
        spec["vocabulary_size"], spec["context_length"], spec["layers"], spec["heads"],
        spec["embedding_size"], spec["untied_output"], seed=0)


def build_radio_unet(spec, description):
    channels = {f["name"]: f["shape"][1] for f in description["fields"] if len(f["shape"]) == 4}
    base, multipliers = spec["base_channels"], spec["channel_multipliers"]
    if spec["part"] == "RADIO_UNET_PART_VAE":
        return radio_unet.Autoencoder(channels["image"], base, multipliers,
                                      spec["latent_channels"], spec["kl_weight"])
    return radio_unet.Diffusion(channels["image"], channels.get("condition", 0), base, multipliers,
                                spec["diffusion_steps"])


KINDS = {"world_model": build_world_model, "transformer": build_transformer,
         "radio_unet": build_radio_unet}


def build(description):
    """Returns a twin with the parameters and buffers of the description, in float32 with random values."""
    kind, spec = next((kind, spec) for kind, spec in description["model"].items() if kind in KINDS)
    torch.manual_seed(0)
    return KINDS[kind](spec, description)
