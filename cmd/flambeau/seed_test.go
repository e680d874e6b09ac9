package main

import (
	"regexp"
	"strings"
	"testing"
)

// The command prints the seed that it draws. This seed repeats the training, and a resumed training
// keeps it.
func TestSeedRandom(t *testing.T) {
	args := []string{"train", "--device", "cpu", "--sched", "constant", "--json", "--losses"}
	losses := func(out string) string { return regexp.MustCompile(`"losses":\[[^]]*`).FindString(out) }
	dir := t.TempDir()
	first, told := must(t, append(args, "--steps", "20", "--seed", "random", "--checkpoint", dir)...)
	drawn := regexp.MustCompile(`--seed random: (\d+) was drawn; --seed (\d+) repeats this training\n`).FindStringSubmatch(told)
	if drawn == nil || drawn[1] != drawn[2] {
		t.Fatalf("the seed is not told\n%s", told)
	}
	again, _ := must(t, append(args, "--steps", "20", "--seed", drawn[1])...)
	if losses(first) == "" || losses(first) != losses(again) {
		t.Errorf("with --seed %s the losses are others", drawn[1])
	}
	rest, told := must(t, append(args, "--steps", "30", "--seed", "random", "--checkpoint", dir, "--resume")...)
	if strings.Contains(told, "was drawn") || !strings.Contains(told, "--seed random: the training was begun with "+drawn[1]+", and goes on with that") {
		t.Errorf("a resume says\n%s", told)
	}
	whole, _ := must(t, append(args, "--steps", "30", "--seed", drawn[1])...)
	if want := losses(whole); losses(rest) == "" || !strings.HasSuffix(want, strings.TrimPrefix(losses(rest), `"losses":[`)) {
		t.Errorf("the resumed training has the losses %s, the whole one %s", losses(rest), want)
	}
	other, told := must(t, append(args, "--steps", "20", "--seed", "random")...)
	if losses(other) == losses(first) {
		t.Errorf("another draw gives the same training\n%s", told)
	}
	if status, _, errOut := command(t, append(args, "--seed=-1")...); status == 0 || !strings.Contains(errOut, "neither a number from 0 up nor random") {
		t.Errorf("--seed -1: status %d\n%s", status, errOut)
	}
}
