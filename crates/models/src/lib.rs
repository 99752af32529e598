//! Decoder language models, fused operations, weights and tokenizers
