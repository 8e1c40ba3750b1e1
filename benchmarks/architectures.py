"""Small configurations with random weights of modules of transformers, torchvision and timm, and a few plain modules, for the conformance
table.

Each entry is a function that returns (module, {field: array}, loss) and, if needed, options of genesis.export."""

import numpy
import timm
import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional

EXAMPLES, CLASSES, WORDS, LENGTH = 40, 10, 64, 12


def images(module, size=32):
    generator = numpy.random.default_rng(0)
    arrays = {"image": generator.normal(size=(EXAMPLES, 3, size, size)).astype("float32"),
              "label": generator.integers(0, CLASSES, EXAMPLES)}
    return module, arrays, lambda model, batch: functional.cross_entropy(model(batch["image"]).float(), batch["label"])


def vision(name, size=32, **options):
    return lambda: images(getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **options), size)


def image_model(name, size=32, **options):
    return lambda: images(timm.create_model(name, pretrained=False, num_classes=CLASSES, **options), size)


def tokens():
    return {"ids": numpy.random.default_rng(0).integers(1, WORDS, (EXAMPLES, LENGTH))}


def language(kind, **options):
    """Returns a function that builds a causal language model."""
    def make():
        config = getattr(transformers, f"{kind}Config")(**{"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1,
                                                           "eos_token_id": 2, **options})
        module = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)
        return module, tokens(), lambda model, batch: model(input_ids=batch["ids"], labels=batch["ids"], use_cache=False).loss
    return make


def masked(kind, **options):
    """Returns a function that builds an encoder that predicts each token."""
    def make():
        config = getattr(transformers, f"{kind}Config")(**{"vocab_size": WORDS, "pad_token_id": 0, **options})
        module = getattr(transformers, f"{kind}ForMaskedLM")(config)
        return module, tokens(), lambda model, batch: model(input_ids=batch["ids"], labels=batch["ids"]).loss
    return make


def translation(kind, **options):
    """Returns a function that builds an encoder-decoder model."""
    def make():
        config = getattr(transformers, f"{kind}Config")(**{"vocab_size": WORDS, "pad_token_id": 0, "decoder_start_token_id": 0, **options})
        module = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
        return module, tokens(), lambda model, batch: model(input_ids=batch["ids"], labels=batch["ids"], use_cache=False).loss
    return make


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent = kind(8, 16, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, row):
        return self.head(self.recurrent(row)[0][:, -1])


class SmallUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 8, 2, 2)
        self.upsample, self.head = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, CLASSES, 1)

    def forward(self, image):
        small = functional.gelu(self.down(image))
        return self.head(torch.cat([self.up(small), self.upsample(small)], 1)).mean((2, 3))


def rows(module):
    def make():
        generator = numpy.random.default_rng(0)
        arrays = {"row": generator.normal(size=(EXAMPLES, 6, 8)).astype("float32"),
                  "label": generator.integers(0, CLASSES, EXAMPLES)}
        return module(), arrays, lambda model, batch: functional.cross_entropy(model(batch["row"]).float(), batch["label"])
    return make


def pairs():
    """Builds a model of matching images and texts, whose loss depends on the whole batch, so that the batch size is fixed."""
    parts = {**SMALL, "projection_dim": 16}
    config = transformers.CLIPConfig(
        text_config={**parts, "vocab_size": WORDS, "max_position_embeddings": LENGTH, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        vision_config={**parts, "image_size": 16, "patch_size": 8}, projection_dim=16)
    generator, examples = numpy.random.default_rng(0), 2 * EXAMPLES
    arrays = {"ids": generator.integers(1, WORDS, (examples, LENGTH)),
              "image": generator.normal(size=(examples, 3, 16, 16)).astype("float32")}
    return (transformers.CLIPModel(config), arrays,
            lambda model, batch: model(input_ids=batch["ids"], pixel_values=batch["image"], return_loss=True).loss, {"dynamic_batch": False})


SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 32}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}

ARCHITECTURES = {
    "torchvision resnet18": vision("resnet18"),
    "torchvision mobilenet_v2": vision("mobilenet_v2"),
    "torchvision mobilenet_v3_small": vision("mobilenet_v3_small"),
    "torchvision shufflenet_v2_x0_5": vision("shufflenet_v2_x0_5"),
    "torchvision squeezenet1_1": vision("squeezenet1_1"),
    "torchvision mnasnet0_5": vision("mnasnet0_5"),
    "torchvision mnasnet1_0": vision("mnasnet1_0"),
    "torchvision densenet121": vision("densenet121"),
    "torchvision regnet_y_400mf": vision("regnet_y_400mf"),
    "torchvision efficientnet_b0": vision("efficientnet_b0"),
    "timm convnext_atto": image_model("convnext_atto"),
    "timm vit_tiny_patch16_224": image_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2),
    "timm mixer_s32_224": image_model("mixer_s32_224", img_size=32),
    "timm swin_tiny_patch4_window7_224": image_model("swin_tiny_patch4_window7_224", img_size=32, window_size=4, depths=(1, 1),
                                                     num_heads=(2, 4), embed_dim=32),
    "timm regnety_002": image_model("regnety_002"),
    "timm ghostnet_050": image_model("ghostnet_050"),
    "timm poolformer_s12": image_model("poolformer_s12"),
    "timm resmlp_12_224": image_model("resmlp_12_224", img_size=32),
    "timm xcit_nano_12_p8_224": image_model("xcit_nano_12_p8_224", img_size=32, depth=2),
    "timm cait_xxs24_224": image_model("cait_xxs24_224", img_size=32, patch_size=8, depth=2),
    "timm tinynet_e": image_model("tinynet_e"),
    "timm dla46_c": image_model("dla46_c"),
    "timm fbnetc_100": image_model("fbnetc_100"),
    "timm pit_ti_224": image_model("pit_ti_224", 64, img_size=64),
    "transformers Llama": language("Llama", **GROUPED),
    "transformers Mistral": language("Mistral", **GROUPED),
    "transformers Qwen2": language("Qwen2", **GROUPED),
    "transformers Qwen3": language("Qwen3", **GROUPED, head_dim=8),
    "transformers Gemma": language("Gemma", **GROUPED, head_dim=8),
    "transformers Phi": language("Phi", **SMALL, max_position_embeddings=32),
    "transformers StableLm": language("StableLm", **GROUPED),
    "transformers Granite": language("Granite", **GROUPED),
    "transformers Olmo": language("Olmo", **GROUPED),
    "transformers GPT2": language("GPT2", **GPT),
    "transformers GPTNeoX": language("GPTNeoX", **SMALL, max_position_embeddings=32),
    "transformers OPT": language("OPT", hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
                                 max_position_embeddings=32, word_embed_proj_dim=32),
    "transformers Bloom": language("Bloom", hidden_size=32, n_layer=2, n_head=4),
    "transformers Mamba": language("Mamba", hidden_size=32, num_hidden_layers=2, state_size=8),
    "transformers Bert": masked("Bert", **SMALL),
    "transformers Roberta": masked("Roberta", **SMALL),
    "transformers DistilBert": masked("DistilBert", dim=32, hidden_dim=64, n_layers=2, n_heads=4),
    "transformers Albert": masked("Albert", **SMALL, embedding_size=16),
    "transformers Electra": masked("Electra", **SMALL, embedding_size=16),
    "transformers T5": translation("T5", d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4),
    "transformers Bart": translation("Bart", d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
                                     encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=32),
    "transformers ModernBert": masked("ModernBert", **SMALL, max_position_embeddings=32, local_attention=8, global_attn_every_n_layers=2,
                                      bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    "transformers Mixtral": language("Mixtral", **GROUPED, num_local_experts=4),
    "transformers Qwen3Moe": language("Qwen3Moe", **GROUPED, head_dim=8, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2),
    "transformers Olmoe": language("Olmoe", **GROUPED, num_experts=4, num_experts_per_tok=2),
    "transformers GptOss": language("GptOss", **GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "transformers CLIP": pairs,
    "torch LSTM": rows(lambda: Recurrent(nn.LSTM)),
    "torch GRU": rows(lambda: Recurrent(nn.GRU)),
    "torch U-Net": lambda: images(SmallUNet()),
}

# Modules that were added last. Neither the exporter nor the list of operators was developed for them.
LAST = {
    "torchvision googlenet": vision("googlenet", 64, aux_logits=False, init_weights=False),
    "torchvision vgg11_bn": vision("vgg11_bn"),
    "timm levit_128s": image_model("levit_128s", 64, img_size=64),
    "timm edgenext_xx_small": image_model("edgenext_xx_small", 64),
    "timm mobilevit_xxs": image_model("mobilevit_xxs", 64),
    "timm res2net50_26w_4s": image_model("res2net50_26w_4s"),
    "transformers Falcon": language("Falcon", hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "transformers GPTJ": language("GPTJ", **GPT, rotary_dim=4),
    "transformers Mpnet": masked("MPNet", **SMALL),
    "transformers SqueezeBert": masked("SqueezeBert", **SMALL, embedding_size=32),
}
