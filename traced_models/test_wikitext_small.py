#!/usr/bin/env python3
"""The shipped model, its figures' bookkeeping, and the text that it was trained on."""

import json
import unittest
from dataclasses import asdict
from pathlib import Path

import torch
from test_support import main, transformers  # first: it may skip the whole file

# isort: split
from corpus import detokenize, read_documents
from gpt2 import GPT2
from gpt2_config import GPT2Config
from json_file import read_json_object
from state_dict import load_weights, read_weights
from tracing import new_cache
from train_config import TrainConfig
from train_data import IGNORE, Stream, build_stream, scoring_windows
from train_tokenizer import load_tokenizer
from unknown_words import UnknownWords

FOLDER = Path(__file__).resolve().parent / "wikitext-small"
TEXT = "On September 14, the storm reached São Tomé; it's 5 @-@ ish.\n\n = Heading = \n"


class ShippedFolder(unittest.TestCase):
    """wikitext-small/ as anyone may load it."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.reference = transformers.GPT2LMHeadModel.from_pretrained(
            FOLDER, attn_implementation="eager", dtype=torch.float32
        ).eval()
        cls.tokenizer = load_tokenizer(FOLDER)

    def test_size(self) -> None:
        self.assertLessEqual(sum(p.stat().st_size for p in FOLDER.iterdir()), 16 * 2**20)

    @torch.no_grad()
    def test_equals_transformers(self) -> None:
        config = GPT2Config.from_dict(read_json_object(FOLDER / "config.json"))
        model = GPT2(config, "baseline").eval()
        load_weights(model, read_weights(FOLDER), "wikitext-small")
        ids = torch.tensor([self.tokenizer.encode(TEXT).ids])
        pos = torch.arange(ids.shape[1])[None]
        logits = model(ids, pos, new_cache(model, 1, ids.shape[1], ids.shape[1]))
        self.assertLess((logits - self.reference(ids).logits).abs().max().item(), 1e-4)

    def test_tokenizer(self) -> None:
        theirs = transformers.GPT2TokenizerFast.from_pretrained(FOLDER)
        ids = self.tokenizer.encode(TEXT).ids
        self.assertEqual(theirs(TEXT)["input_ids"], ids)
        self.assertEqual(theirs.decode(ids, clean_up_tokenization_spaces=False), TEXT)
        end = theirs.convert_tokens_to_ids("<|endoftext|>")
        self.assertEqual(end, self.reference.config.eos_token_id)
        self.assertEqual(theirs.vocab_size, self.reference.config.vocab_size)

    def test_it_was_trained(self) -> None:
        """The end of a phrase of the corpus is far likelier than its words in another order."""
        losses = []
        for text in (" during the Second World War.", " War World Second the during."):
            ids = torch.tensor([[self.reference.config.bos_token_id]])
            ids = torch.cat([ids, torch.tensor([self.tokenizer.encode(text).ids])], dim=1)
            with torch.no_grad():
                log_probs = self.reference(ids).logits[0, :-1].log_softmax(-1)
            losses.append(-log_probs.gather(1, ids[0, 1:, None]).mean().item())
        self.assertLess(losses[0] + 1, losses[1])

    def test_log_is_of_the_default_run(self) -> None:
        log = json.loads((FOLDER / "training_log.json").read_text(encoding="utf-8"))
        self.assertEqual(log["config"], asdict(TrainConfig()))
        self.assertEqual(log["curve"][-1]["step"], TrainConfig().steps)
        self.assertEqual(log["parameters"], sum(p.numel() for p in self.reference.parameters()))


class HeldOutScore(unittest.TestCase):
    """Each held-out token is scored once, and no word that stands in for "<unk>"."""

    def test_windows_cover_every_target_once(self) -> None:
        for count, context, stride in ((100, 16, 8), (97, 16, 16), (50, 16, 5), (17, 16, 8)):
            ids = torch.arange(count)
            inputs, targets = scoring_windows(Stream(ids, ids, 0, 0), context, stride)
            scored = targets[targets != IGNORE]
            self.assertEqual(sorted(scored.tolist()), list(range(1, count)))
            for row, (x, y) in enumerate(zip(inputs, targets)):
                kept = y != IGNORE
                self.assertTrue(torch.equal(y[kept], x[kept] + 1))
                if row:
                    before = int(kept.nonzero()[0])  # tokens of the window before the first score
                    self.assertGreaterEqual(before, context - stride)

    def test_unknown_words_are_not_scored(self) -> None:
        lines = [" = A title = ", "", " The old <unk> sank ; it was 3 @,@ 000 t . ", ""]
        unknown = UnknownWords(["The old Titanic sank at sea ."] * 3)
        (document,) = read_documents(lines, unknown)
        self.assertEqual(document.text, " = A title = \n\nThe old Titanic sank; it was 3,000 t.\n")
        (span,) = document.filled
        self.assertEqual(document.text[slice(*span)], "Titanic")
        tokenizer = load_tokenizer(FOLDER)
        stream = build_stream([document], tokenizer, score_filled=False)
        hidden = stream.ids[stream.targets == IGNORE].tolist()
        self.assertEqual(tokenizer.decode(hidden).strip(), "Titanic")
        scored = len(document.text.encode()) - len(tokenizer.decode(hidden).encode())
        self.assertEqual(stream.scored_bytes, scored)

    def test_detokenize(self) -> None:
        for given, expected in (
            ("he said , \" no \" , and left .", 'he said, "no", and left.'),
            ("the ship 's 3 @.@ 5 @-@ inch guns", "the ship's 3.5-inch guns"),
            ("( 40 % ) of £ 3", "(40%) of £3"),
            ("= = Sub heading = =", "\n = = Sub heading = = \n"),
        ):
            self.assertEqual(detokenize(given).strip(" "), expected)


if __name__ == "__main__":
    main()
