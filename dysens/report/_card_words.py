"""The words of cards, in English and Chinese."""

from __future__ import annotations

from html import escape

# English and Chinese, both in the page: a button shows one of them.
WORDS = {
    "summary": ("Before and after", "前后对比"),
    "states": ("State by state", "各阶段"),
    "state": ("state", "阶段"),
    "score": ("score", "得分"),
    "flops": ("FLOPs", "FLOPs"),
    "params": ("parameters", "参数量"),
    "file": ("file", "文件"),
    "ms": ("milliseconds", "毫秒"),
    "spread_note": (
        "The figure after ± is the standard error of the score over the evaluation data.",
        "± 之后是得分在评估数据上的标准误差。",
    ),
    "widths": ("Channels before and after", "剪枝前后的通道数"),
    "widths_note": (
        "Each bar is a group of channels, in the order of the network: light before, dark after. Heights are square roots of the "
        "number of channels, so that narrow layers can be seen.",
        "每根柱子是一组通道，按网络顺序排列：浅色为剪枝前，深色为剪枝后。高度是通道数的平方根，以便看清窄的层。",
    ),
    "layer": ("layer", "层"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "all_widths": ("All widths as a table", "全部宽度（表格）"),
    "samples": ("Side by side", "并排对比"),
    "samples_note": (
        "The original on the left (green), the result on the right (red), on the first images of the evaluation data.",
        "左为原模型（绿），右为结果（红），取自评估数据的前几张图。",
    ),
    "texts_note": (
        "What the original and the result read in the first images of the evaluation data. Differences are outlined.",
        "原模型和结果在评估数据前几张图中读出的文字，不同之处有边框。",
    ),
    "same_text": ("both read", "两者读出"),
    "original": ("original", "原模型"),
    "pruned": ("pruned", "剪枝后"),
    "trained": ("trained", "训练后"),
    "compressed": ("compressed", "压缩后"),
    "after fine-tuning": ("after fine-tuning", "微调后"),
    "exported": ("exported", "导出后"),
    "result": ("result", "结果"),
    "found": ("regions", "个区域"),
    "was": ("was", "原为"),
    "proof": ("Proof", "验证"),
    "masked_and_cut": (
        "largest difference between the masked and the cut network, relative to the largest value",
        "掩码网络与剪枝后网络输出的最大差异（相对最大值）",
    ),
    "live_and_exported": (
        "largest difference between the outputs of the live and the exported network",
        "动态图网络与导出模型输出的最大差异",
    ),
    "output_error": (
        "squared error of the outputs on held-out data, relative to their variance",
        "未参与校准的数据上，输出的平方误差（相对其方差）",
    ),
    "how": ("How it was made", "来历"),
    "framework": ("framework", "框架"),
    "evaluated_on": ("scored on", "评估数据"),
    "calibrated_on": ("calibrated on", "校准数据"),
    "criterion": ("channels chosen by", "剪枝准则"),
    "timed_on": ("timed on", "计时环境"),
    "seed": ("seed", "随机种子"),
    "date": ("date", "日期"),
    "versions": ("versions", "版本"),
    "commands": ("Commands", "命令"),
    "notes": ("Notes", "须知"),
    "running": ("still running", "仍在运行"),
    "unknown": ("not measured", "未测量"),
    "less": ("less", "减少"),
    "more": ("more", "增加"),
}

# What dysens writes into a card about how channels were chosen and times measured; longer phrases first.
PHRASES = {
    "elimination with folding, allocated ": "逐个剔除并入，分配方式：",
    "by layer errors and gradients": "按层误差和梯度",
    "by layer errors": "按层误差",
    "by gradients": "按梯度",
    "by the sweep": "按扫描结果",
    "by trial": "按随机试探",
    "uniform": "均匀",
    ", folded in sequence": "，按顺序并入",
    ", one thread, median of calls in turns": "，单线程，轮流调用取中位数",
}


def word(key: str) -> str:
    """A word in both languages; one of them is shown."""
    return in_both(*WORDS[key])


def in_both(english: str, chinese: str) -> str:
    """A text in both languages; one of them is shown."""
    return f'<span lang="en">{escape(english)}</span><span lang="zh">{escape(chinese)}</span>'


def fact_in_both(text: str) -> str:
    """A fact as it is, or in both languages as far as its words are ours."""
    chinese = text
    for phrase, translated in PHRASES.items():
        chinese = chinese.replace(phrase, translated)
    return escape(text) if chinese == text else in_both(text, chinese)


def known_word(text: str) -> str:
    """A word of ours in both languages, or any other text as it is."""
    return word(text) if text in WORDS else escape(text)
