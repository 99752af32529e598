//! The files of Hugging Face: what a model's folder holds beside its weights.

mod chat_template;
mod config;
mod json_object;
mod model_folder;
mod peft;
mod python_json;
mod python_strings;
mod special_tokens;
mod tokenizer;

pub use chat_template::ChatTemplate;
pub use model_folder::ModelFolder;
pub use special_tokens::SpecialTokens;
pub use tokenizer::HuggingFaceTokenizer;
