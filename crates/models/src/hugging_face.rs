//! The files of Hugging Face: what a model's folder holds beside its weights.

mod config;
mod json_object;
mod model_folder;
mod peft;

pub use model_folder::ModelFolder;
