package models

// published lists the weights on Hugging Face's hub for the language models of this package. Each
// repository has the file model.safetensors, with names that LoadStateDict accepts. It also has the
// files of the model's tokenizer.
var published = map[string]struct {
	repository string   // in https://huggingface.co/<repository>
	tokenizer  []string // names of the files for text.LoadBPE or text.LoadWordPiece
	model      func() any
}{
	"gpt2":              {"openai-community/gpt2", []string{"vocab.json", "merges.txt"}, func() any { return NewGPT(GPT2()) }},
	"gpt2-medium":       {"openai-community/gpt2-medium", []string{"vocab.json", "merges.txt"}, func() any { return NewGPT(GPT2Medium()) }},
	"gpt2-large":        {"openai-community/gpt2-large", []string{"vocab.json", "merges.txt"}, func() any { return NewGPT(GPT2Large()) }},
	"gpt2-xl":           {"openai-community/gpt2-xl", []string{"vocab.json", "merges.txt"}, func() any { return NewGPT(GPT2XL()) }},
	"bert-base-uncased": {"google-bert/bert-base-uncased", []string{"vocab.txt"}, func() any { return NewBERT(BERTBase()) }},
}
