// Package models has known networks as structs. Their weights have the names and layouts of the
// PyTorch originals, so that weights can be exchanged in both directions.
//
// Language models: [GPT], OpenAI's GPT-2 in any size, with [GPT.Generate] and [GPT.Stream]; [BERT]
// with its heads [MaskedLM] and [SequenceClassifier]. Their names are Hugging Face's. Tokens are
// int64 tensors [batch, length]; package data/text converts text to tokens.
//
// Vision: [MLP], [LeNet] and [CNN] for small images, [ResNet] and [ViT] with torchvision's names.
// Images are floating point tensors [batch, channels, height, width].
//
// [Pretrained] downloads published weights of both kinds.
//
// A constructor with an invalid argument (a width that the heads do not divide) panics with an
// *[Error], since that is a mistake in the program. Methods that load or generate return errors.
package models
