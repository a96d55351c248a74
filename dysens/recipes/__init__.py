"""From a config of PaddleOCR or PaddleDetection to a smaller, fine-tuned model: the steps behind tools/."""
