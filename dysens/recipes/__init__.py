"""From a config of PaddleOCR to a smaller, fine-tuned, exported model: the steps behind tools/."""
