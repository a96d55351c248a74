"""Networks of checkouts of PaddleClas, PaddleSeg, PaddleDetection and PaddleOCR, for `benchmarks/coverage.py --zoo`.

A checkout of each is looked for where PADDLECLAS_HOME, PADDLESEG_HOME, PADDLEDETECTION_HOME and PADDLEOCR_HOME say; networks of
one that is not there are left out. Any other file that defines `NETWORKS` (name to a function that gives a model and its example
inputs) serves as well.

Left out, as checkouts of October 2024 do not build them by themselves: SwinTransformerV2 (names a variable that is not there),
UniFormer (downloads weights), LiteHRNet (has no list of its outputs).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dysens  # noqa: F401  before Paddle: see dysens/__init__.py

SMALL, FACE, FULL = [1, 3, 64, 64], [1, 3, 112, 112], [1, 3, 224, 224]

# module: network; one of each family, the smallest. A star: it takes pictures of 224 x 224 only; a plus: of 112 x 112.
CLAS_NETWORKS = """
model_zoo.adaface_ir_net:AdaFace_IR_18+ model_zoo.alexnet:AlexNet* model_zoo.convnext:ConvNeXt_tiny
model_zoo.cspnet:CSPDarkNet53 model_zoo.cvt:CvT_13_224* model_zoo.darknet:DarkNet53 model_zoo.densenet:DenseNet121
model_zoo.distilled_vision_transformer:DeiT_tiny_patch16_224* model_zoo.dla:DLA34 model_zoo.dpn:DPN68
model_zoo.dsnet:DSNet_tiny* model_zoo.efficientnet:EfficientNetB0 model_zoo.efficientnet_v2:EfficientNetV2_S
model_zoo.fasternet:FasterNet_T0 model_zoo.ghostnet:GhostNet_x0_5 model_zoo.googlenet:GoogLeNet*
model_zoo.hardnet:HarDNet39_ds model_zoo.inception_v4:InceptionV4* model_zoo.levit:LeViT_128S*
model_zoo.micronet:MicroNet_M0 model_zoo.mixnet:MixNet_S* model_zoo.mobilenet_v2:MobileNetV2_x0_25
model_zoo.mobilenext:MobileNeXt_x0_35 model_zoo.mobilevit:MobileViT_XXS model_zoo.mobilevit_v2:MobileViTV2_x0_5
model_zoo.mobilevit_v3:MobileViTV3_XXS model_zoo.nextvit:NextViT_small_224 model_zoo.peleenet:PeleeNet*
model_zoo.pvt_v2:PVT_V2_B0 model_zoo.rednet:RedNet26 model_zoo.regnet:RegNetX_200MF model_zoo.repvgg:RepVGG_A0
model_zoo.res2net:Res2Net50_26w_4s model_zoo.res2net_vd:Res2Net50_vd_26w_4s model_zoo.resnest:ResNeSt50_fast_1s1x64d
model_zoo.resnet_vc:ResNet50_vc model_zoo.resnext:ResNeXt50_32x4d model_zoo.resnext_vd:ResNeXt50_vd_32x4d
model_zoo.rexnet:ReXNet_1_0 model_zoo.se_resnet_vd:SE_ResNet18_vd model_zoo.se_resnext:SE_ResNeXt50_32x4d
model_zoo.se_resnext_vd:SE_ResNeXt50_vd_32x4d model_zoo.shufflenet_v2:ShuffleNetV2_x0_25
model_zoo.squeezenet:SqueezeNet1_1* model_zoo.starnet:StarNet_S1
model_zoo.tinynet:TinyNet_E model_zoo.tnt:TNT_small* model_zoo.twins:pcpvt_small* model_zoo.van:VAN_B0
model_zoo.vision_transformer:ViT_small_patch16_224* model_zoo.xception:Xception41
model_zoo.xception_deeplab:Xception41_deeplab legendary_models.esnet:ESNet_x0_25 legendary_models.hrnet:HRNet_W18_C
legendary_models.inception_v3:InceptionV3* legendary_models.mobilenet_v1:MobileNetV1_x0_25
legendary_models.mobilenet_v3:MobileNetV3_small_x0_35 legendary_models.mobilenet_v4:MobileNetV4_conv_small
legendary_models.pp_hgnet:PPHGNet_tiny legendary_models.pp_hgnet_v2:PPHGNetV2_B0
legendary_models.pp_lcnet:PPLCNet_x0_25 legendary_models.pp_lcnet_v2:PPLCNetV2_small
legendary_models.resnet:ResNet18_vd legendary_models.swin_transformer:SwinTransformer_tiny_patch4_window7_224*
legendary_models.vgg:VGG11*
"""

# network: backbone ("" for none), and further arguments
SEG: dict[str, tuple[str, dict[str, Any]]] = {
    "UNet": ("", {}),
    "UNetPlusPlus": ("", {"in_channels": 3}),
    "AttentionUNet": ("", {}),
    "ENet": ("", {}),
    "ESPNetV1": ("", {"num_classes": 19}),
    "ESPNetV2": ("", {}),
    "FastSCNN": ("", {}),
    "BiSeNetV2": ("", {}),
    "BiseNetV1": ("ResNet18_vd", {}),
    "DDRNet_23": ("", {}),
    "HarDNet": ("", {}),
    "SegNet": ("", {}),
    "U2Netp": ("", {}),
    "PortraitNet": ("MobileNetV2_x1_0", {}),
    "PPHumanSegLite": ("", {}),
    "PPLiteSeg": ("STDC1", {}),
    "STDCSeg": ("STDC1", {}),
    "DeepLabV3P": ("ResNet18_vd", {}),
    "PSPNet": ("ResNet18_vd", {}),
    "OCRNet": ("HRNet_W18_Small_V1", {"backbone_indices": [0]}),
    "FCN": ("HRNet_W18_Small_V1", {"backbone_indices": [0]}),
    "SegFormer": ("MixVisionTransformer_B0", {"embedding_dim": 64}),
    "DANet": ("ResNet18_vd", {"backbone_indices": [2, 3]}),
}
DET = {
    "MobileNet": {},
    "MobileNetV3": {},
    "LCNet": {},
    "ESNet": {},
    "HarDNet": {},
    "BlazeNet": {},
    "CSPDarkNet": {},
    "CSPResNet": {"layers": [1, 2, 2, 1], "channels": [16, 32, 48, 64, 96]},
    "DarkNet": {},
    "GhostNet": {},
    "ResNet": {"depth": 18, "variant": "d"},
    "SENet": {"depth": 50},
    "Res2Net": {"depth": 50},
    "ShuffleNetV2": {},
    "PPHGNetV2": {"arch": "L"},
    "DLA": {},
}


def _clas(module: str, name: str, shape: list[int]) -> tuple[Any, Any]:
    importlib.import_module("ppcls.utils.logger").init_logger()  # some networks warn while they are built
    build = getattr(importlib.import_module(f"ppcls.arch.backbone.{module}"), name)
    return build(), shape


def _seg(name: str, backbone: str, options: dict[str, Any]) -> tuple[Any, Any]:
    models = importlib.import_module("paddleseg.models")
    if backbone:
        options = {
            **options,
            "backbone": getattr(importlib.import_module("paddleseg.models.backbones"), backbone)(),
        }
    return getattr(models, name)(**{"num_classes": 5, **options}), [1, 3, 128, 128]


class _Backbone:
    """Gives a detector's backbone its image in the form that it takes."""

    def __new__(cls, backbone: Any) -> Any:
        import paddle

        class Backbone(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.backbone = backbone
                self.heads = paddle.nn.LayerList(
                    [paddle.nn.Conv2D(spec.channels, 4, 1) for spec in backbone.out_shape]
                )

            def forward(self, image: Any) -> Any:
                return [head(each) for head, each in zip(self.heads, self.backbone({"image": image}))]

        return Backbone()


def _det(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    backbones = importlib.import_module("ppdet.modeling.backbones")
    return _Backbone(getattr(backbones, name)(**options)), [1, 3, 128, 128]


class _Parts:
    """A detector of a config without the steps after its network: lists of boxes that depend on values are no outputs."""

    def __new__(cls, home: str, config: str) -> Any:
        import paddle

        workspace = importlib.import_module("ppdet.core.workspace")
        read = workspace.load_config(str(Path(home, "configs", config)))
        read["pretrain_weights"] = None
        read["eval_size"] = None  # pictures of any size
        whole = workspace.create(read["architecture"])

        class Network(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.network = whole

            def forward(self, image: Any) -> Any:
                features = whole.backbone({"image": image})
                if hasattr(whole, "final_conv"):
                    return whole.final_conv(features[0])
                return whole.transformer(whole.neck(features), None, {"image": image})

        return Network()


def _detector(home: str, config: str, shape: list[int]) -> tuple[Any, Any]:
    return _Parts(home, config), shape


DETECTORS = {
    "RT-DETR-R18": ("rtdetr/rtdetr_r18vd_6x_coco.yml", [1, 3, 160, 160]),
    "TinyPose": ("keypoint/tiny_pose/tinypose_128x96.yml", [1, 3, 128, 96]),
}

OCR = {
    "CRNN": ("rec_mv3_none_bilstm_ctc.yml", [1, 3, 32, 100]),
    "SVTR_tiny": ("rec_svtrnet.yml", [1, 3, 64, 256]),
    "PP-OCRv3_mobile_rec": ("PP-OCRv3/PP-OCRv3_mobile_rec.yml", [1, 3, 48, 160]),
    "PP-OCRv4_mobile_rec": ("PP-OCRv4/PP-OCRv4_mobile_rec.yml", [1, 3, 48, 160]),
    "PP-OCRv5_mobile_rec": ("PP-OCRv5/PP-OCRv5_mobile_rec.yml", [1, 3, 48, 160]),
}
_CHARACTERS = {"CTCLabelDecode": 97, "SARLabelDecode": 99, "NRTRLabelDecode": 100}


def _ocr(home: str, config: str, shape: list[int]) -> tuple[Any, Any]:
    import yaml

    text = Path(home, "configs", "rec", config).read_text(encoding="utf-8")
    architecture = yaml.safe_load(text)["Architecture"]
    head = architecture["Head"]
    head["out_channels_list" if head["name"] == "MultiHead" else "out_channels"] = (
        _CHARACTERS if head["name"] == "MultiHead" else 97
    )
    return importlib.import_module("ppocr.modeling.architectures").build_model(architecture), shape


NETWORKS: dict[str, Callable[[], tuple[Any, Any]]] = {}
if home := os.environ.get("PADDLECLAS_HOME"):
    sys.path.insert(0, home)
    for entry in CLAS_NETWORKS.split():
        module, _, name = entry.rstrip("*+").partition(":")
        shape = {"*": FULL, "+": FACE}.get(entry[-1], SMALL)
        NETWORKS[f"ppcls {name}"] = partial(_clas, module, name, shape)
if home := os.environ.get("PADDLESEG_HOME"):
    sys.path.insert(0, home)
    for name, (backbone, options) in SEG.items():
        NETWORKS[f"paddleseg {name}"] = partial(_seg, name, backbone, options)
if home := os.environ.get("PADDLEDETECTION_HOME"):
    sys.path.insert(0, home)
    for name, options in DET.items():
        NETWORKS[f"ppdet {name}"] = partial(_det, name, options)
    for name, (config, shape) in DETECTORS.items():
        NETWORKS[f"ppdet {name}"] = partial(_detector, home, config, shape)
if home := os.environ.get("PADDLEOCR_HOME"):
    sys.path.insert(0, home)
    for name, (config, shape) in OCR.items():
        NETWORKS[f"ppocr {name}"] = partial(_ocr, home, config, shape)
