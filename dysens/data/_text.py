"""What is written on generated images, and the fonts that are at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager

LATIN_FILES = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
)
# Parts of the file names of common fonts with simplified Chinese.
CHINESE_FILES = (
    "wqy",
    "notosanscjk",
    "notoserifcjk",
    "sourcehan",
    "droidsansfallback",
    "simhei",
    "msyh",
    "pingfang",
)


@dataclass(frozen=True)
class Fonts:
    """Font files by script; without Chinese ones no Chinese text is drawn."""

    latin: tuple[Path, ...]
    chinese: tuple[Path, ...] = ()


def find_fonts() -> Fonts:
    """matplotlib's own fonts, and the Chinese fonts installed on this machine."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    installed = sorted(Path(file) for file in font_manager.findSystemFonts())
    chinese = [
        path
        for path in installed
        if any(part in path.name.lower().replace("-", "") for part in CHINESE_FILES)
    ]
    return Fonts(tuple(folder / name for name in LATIN_FILES), tuple(chinese))


ENGLISH_WORDS = """
open closed exit entrance street avenue station platform ticket museum library hospital market bakery
coffee kitchen garden window number price total cash change receipt order table service return discount
member fresh organic bread butter cheese orange lemon sugar water juice winter summer spring autumn
morning evening monday friday sunday january march october north south bridge river harbour island
mountain valley forest speed limit danger warning caution private parking reserved visitors please
welcome thank quality original product weight volume battery charger model serial version printer
keyboard network signal channel filter engine pressure voltage current machine factory shipping
delivery address customer account invoice payment
"""
CHINESE_WORDS = """
欢迎光临 营业时间 请勿吸烟 注意安全 安全出口 人民医院 火车站 公共汽车 停车场 入口 出口 洗手间 图书馆
博物馆 超市 药店 中国银行 邮政编码 电话号码 地址 价格 合计 收银员 谢谢惠顾 生产日期 保质期 净含量
产品名称 使用说明 客服热线 北京市 上海市 广州 深圳 杭州西湖 长江大桥 春夏秋冬 东南西北 天气预报
高速公路 限速 禁止停车 小心地滑 节约用水 绿色食品 新鲜水果 牛奶 面包 咖啡 红茶 快递 订单编号 发票
会员优惠 周年庆典 学习园地 科学技术 电子商务 信息中心
"""
ENGLISH, CHINESE = ENGLISH_WORDS.split(), CHINESE_WORDS.split()
CHINESE_SHARE = 0.35
MAX_LENGTH = 25  # PaddleOCR's usual max_text_length


def draw_text(rng: np.random.Generator, chinese: bool, characters: str | None = None) -> tuple[str, bool]:
    """A short text, and whether it is Chinese.

    Args:
        rng: Where the choice comes from.
        chinese: Whether it may be.
        characters: Draw a text of these, each equally likely, instead of words.
    """
    if characters is not None:
        drawn = "".join(rng.choice(list("".join(characters.split())), size=rng.integers(3, 9)))
        return drawn, chinese and not drawn.isascii()
    if chinese and rng.random() < CHINESE_SHARE:
        return str(rng.choice(CHINESE)), True
    if rng.random() < 0.25:
        return _draw_number(rng), False
    words = [str(word) for word in rng.choice(ENGLISH, size=rng.integers(1, 4))]
    text = " ".join(words)
    casing = rng.random()
    if casing < 0.3:
        text = text.upper()
    elif casing < 0.7:
        text = text.title()
    return text[:MAX_LENGTH].rstrip(), False


def _draw_number(rng: np.random.Generator) -> str:
    number = int(rng.integers(10, 100_000))
    return str(
        rng.choice(
            [
                f"No.{number}",
                f"${number / 100:.2f}",
                f"{number % 24:02d}:{number % 60:02d}",
                f"20{number % 100:02d}-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
                f"A{number}-{number % 97}",
                f"{number}",
            ]
        )
    )
