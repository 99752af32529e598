//! Generation: the embedded engine with its KV cache, samplers and stop rules
