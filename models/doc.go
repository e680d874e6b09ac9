// Package models is known networks as structs, with the names and layouts of weights that their
// PyTorch originals have, so that weights go both ways.
//
// Language models: [GPT], OpenAI's GPT-2 in any size, with [GPT.Generate] and [GPT.Stream]; [BERT]
// with its heads [MaskedLM] and [SequenceClassifier]. Their names are Hugging Face's. Tokens are
// int64 tensors [batch, length]; package data/text makes tokens of text.
//
// Vision: [MLP], [LeNet] and [CNN] for small images, [ResNet] and [ViT] with torchvision's names.
// Images are floating point tensors [batch, channels, height, width].
//
// [Pretrained] fetches published weights of both kinds.
//
// A constructor that is given something wrong (a width that the heads do not divide) panics with an
// *[Error]: that is a mistake in the program. Methods that load or generate return errors.
package models
