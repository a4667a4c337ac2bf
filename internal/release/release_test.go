package release

import (
	"testing"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name         string
		mine, theirs Release
		want         Verdict
	}{
		{"the same", Release{"1.4.2", 3}, Release{"1.4.2", 3}, Fits},
		{"another patch", Release{"1.4.2", 3}, Release{"1.4.9", 3}, Fits},
		{"a development build", Release{"1.4.0", 3}, Release{"1.5.0-dev", 3}, Fits},
		{"build metadata", Release{"1.4.0", 3}, Release{"1.4.0+8c1f2a9", 3}, Fits},
		{"a leading v", Release{"v1.4.0", 3}, Release{"1.4.0", 3}, Fits},
		{"one minor older", Release{"1.4.0", 3}, Release{"1.3.7", 3}, Fits},
		{"one minor newer", Release{"1.4.0", 3}, Release{"1.5.0", 3}, Fits},
		{"two minor older", Release{"1.4.0", 3}, Release{"1.2.9", 3}, TooOld},
		{"two minor newer", Release{"1.4.0", 3}, Release{"1.6.0", 3}, TooNew},
		{"numbers, not text", Release{"1.9.0", 3}, Release{"1.10.0", 3}, Fits},
		{"a major older", Release{"2.0.0", 3}, Release{"1.9.0", 3}, TooOld},
		{"a major newer", Release{"1.9.0", 3}, Release{"2.0.0", 3}, TooNew},
		{"an older protocol", Release{"1.4.0", 3}, Release{"1.4.0", 2}, TooOld},
		{"a newer protocol", Release{"1.4.0", 3}, Release{"1.4.0", 4}, TooNew},
		{"an older protocol of a newer release", Release{"1.4.0", 3}, Release{"1.5.0", 2}, TooOld},
		{"it says nothing", Release{"1.4.0", 3}, Release{}, TooOld},
		{"no version", Release{"1.4.0", 3}, Release{"", 3}, TooOld},
		{"not a version", Release{"1.4.0", 3}, Release{"latest", 3}, TooOld},
		{"two numbers", Release{"1.4.0", 3}, Release{"1.4", 3}, TooOld},
		{"a number that is none", Release{"1.4.0", 3}, Release{"1.-4.0", 3}, TooOld},
		{"a number without end", Release{"1.4.0", 3}, Release{"1.99999999999999999999.0", 3}, TooOld},
		{"a version of this program that nobody can read", Release{"", 3}, Release{"1.4.0", 3}, TooNew},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Judge(c.mine, c.theirs); got != c.want {
				t.Errorf("Judge(%v, %v) = %v, want %v", c.mine, c.theirs, got, c.want)
			}
		})
	}
}

// Whoever is asked, both sides agree who has to be upgraded.
func TestJudgeIsTheSameFromBothSides(t *testing.T) {
	readable := rapid.Custom(func(t *rapid.T) Release {
		version := rapid.StringMatching(`[0-3]\.([0-9]|1[0-9])\.[0-9](-dev)?`).Draw(t, "version")
		return Release{version, rapid.IntRange(1, 3).Draw(t, "protocol")}
	})
	opposite := map[Verdict]Verdict{Fits: Fits, TooOld: TooNew, TooNew: TooOld}
	rapid.Check(t, func(t *rapid.T) {
		a, b := readable.Draw(t, "a"), readable.Draw(t, "b")
		if there, back := Judge(a, b), Judge(b, a); back != opposite[there] {
			t.Fatalf("Judge(%v, %v) = %v, but the other way round %v", a, b, there, back)
		}
	})
}

func TestSkewSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		asks, answers Release
		code, text    string
	}{
		{
			Release{"0.1.3", 1},
			Release{"0.4.0", 1},
			"release_too_old",
			"release 0.1.3 (protocol 1) is too old for release 0.4.0 (protocol 1), which answers: programs work together that speak the same protocol and are at most one minor release apart; upgrade what asks",
		},
		{
			Release{"0.4.0", 2},
			Release{"0.4.0", 1},
			"release_too_new",
			"release 0.4.0 (protocol 2) is too new for release 0.4.0 (protocol 1), which answers: programs work together that speak the same protocol and are at most one minor release apart; upgrade what answers, or ask with an older release",
		},
		{
			Release{},
			Release{"0.4.0", 1},
			"release_too_old",
			"a release that does not say which is too old for release 0.4.0 (protocol 1), which answers: programs work together that speak the same protocol and are at most one minor release apart; upgrade what asks",
		},
	} {
		skew := Check(c.asks, c.answers)
		if skew == nil {
			t.Errorf("%v and %v work together", c.asks, c.answers)
			continue
		}
		if skew.Code() != c.code || skew.Error() != c.text {
			t.Errorf("%v asks %v: %s: %s\nwant %s: %s", c.asks, c.answers, skew.Code(), skew, c.code, c.text)
		}
	}
	if skew := Check(Release{"0.3.0", 1}, Release{"0.4.0", 1}); skew != nil {
		t.Errorf("neighbours do not work together: %v", skew)
	}
}
