package redact_test

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/secret/redact"
)

func TestWhatGoesAndWhatStays(t *testing.T) {
	values := map[string]string{
		"TOKEN": "s3cr3t-token", "LONG": "s3cr3t-token-and-more", "SHORT": "abc", "QUOTED": `pa"ss\word&1`,
		"KEY": "-----BEGIN KEY-----\r\n  MIIEvQIBADAN\n\nab\nkcNc4FqB9ZzQ==\n-----END KEY-----\n", "OVER": "more-yet",
	}
	r := redact.New(values)
	for name, c := range map[string]struct{ in, want string }{
		"nothing":             {"hello", "hello"},
		"empty":               {"", ""},
		"alone":               {"s3cr3t-token", "[TOKEN]"},
		"inside":              {"auth=s3cr3t-token;", "auth=[TOKEN];"},
		"twice":               {"s3cr3t-tokens3cr3t-token", "[TOKEN][TOKEN]"},
		"nearly":              {"s3cr3t-toke", "s3cr3t-toke"},
		"the longer one":      {"<s3cr3t-token-and-more>", "<[LONG]>"},
		"overlapping":         {"<s3cr3t-token-and-more-yet>", "<[LONG]>"},
		"too short to be one": {"abc", "abc"},
		"a line of it":        {"got MIIEvQIBADAN and -----BEGIN KEY-----", "got [KEY] and [KEY]"},
		"a short line of it":  {"ab", "ab"},
		"in a JSON string":    {`{"p": "pa\"ss\\word&1"}`, `{"p": "[QUOTED]"}`},
		"in a query":          {"?p=pa%22ss%5Cword%261&x=1", "?p=[QUOTED]&x=1"},
		"in a path":           {"/pa%22ss%5Cword&1/x", "/[QUOTED]/x"},
		"not UTF-8":           {"\xff\xfes3cr3t-token\x00", "\xff\xfe[TOKEN]\x00"},
		"base64":              {"czNjcjN0LXRva2Vu", "[TOKEN]"},
		"base64 with newline": {"czNjcjN0LXRva2VuCg==", "[TOKEN]Cg=="},
		"basic authorisation": {base64.StdEncoding.EncodeToString([]byte("u:s3cr3t-token")), "dTp[TOKEN]4="},
		"after one byte":      {base64.StdEncoding.EncodeToString([]byte("us3cr3t-token!!")), "dX[TOKEN]iEh"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, r.Text(c.in))
		})
	}
}

func TestBase64OfALongValueIsFoundInLines(t *testing.T) {
	value := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz~?>", 4)
	r := redact.New(map[string]string{"BLOB": value})
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		encoded := encoding.EncodeToString([]byte(value))
		require.Equal(t, "[BLOB]", r.Text(encoded), "in one line")
		require.Equal(t, "[BLOB]", r.Text(encoded[:76]))
		require.Equal(t, "[BLOB]", r.Text(encoded[76:152]))
	}
}

func TestNobodysSecrets(t *testing.T) {
	var none *redact.Redactor
	require.Equal(t, "hello", none.Text("hello"))
	require.Equal(t, "hello", string(none.Stream().Line([]byte("hello"), true)))
	require.Equal(t, "hello", redact.New(nil).Text("hello"))
	require.Equal(t, "hello", redact.New(map[string]string{"A": "", "B": "  \n \n", "C": "hel"}).Text("hello"))
}

// TestASecretOverTheEndOfAPiece cuts a line in every place.
func TestASecretOverTheEndOfAPiece(t *testing.T) {
	r := redact.New(map[string]string{"TOKEN": "ABCDEFGHIJ"})
	const line = "..ABCDEFGHIJ.."
	for first := range len(line) + 1 {
		for second := first; second <= len(line); second++ {
			s := r.Stream()
			var got []string
			for i, piece := range []string{line[:first], line[first:second], line[second:]} {
				got = append(got, string(s.Line([]byte(piece), i < 2)))
			}
			require.NotRegexp(t, "[A-Z]{4}", strings.ReplaceAll(strings.Join(got, "|"), "[TOKEN]", "*"))
			require.NotContains(t, strings.Join(got, ""), "DEFG")
			require.Equal(t, "[TOKEN]", string(s.Line([]byte("ABCDEFGHIJ"), false)), "the next line begins anew")
		}
	}
}

// TestNoPartOfASecretIsLeft puts secrets of capital letters into other text, in
// whatever pieces: what is left has no more than three capitals in a row.
func TestNoPartOfASecretIsLeft(t *testing.T) {
	capitals := regexp.MustCompile("[A-Z]{4}")
	rapid.Check(t, func(t *rapid.T) {
		values := map[string]string{}
		var texts []string
		for i, value := range rapid.SliceOfN(rapid.StringMatching("[AB]{4,8}|[A-E]{4,12}"), 1, 4).Draw(t, "values") {
			values[string(rune('a'+i))] = value
			texts = append(texts, value)
		}
		r := redact.New(values)
		var line string
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			line += rapid.SampledFrom(append(texts, ".", "xyz", "")).Draw(t, "part")
		}
		whole := r.Text(line)
		require.NotRegexp(t, capitals, whole)
		require.Equal(t, strings.Count(line, "."), strings.Count(whole, "."), "everything else is left")
		require.Equal(t, strings.Count(line, "xyz"), strings.Count(whole, "xyz"))

		s := r.Stream()
		for rest := line; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			require.NotRegexp(t, capitals, string(s.Line([]byte(rest[:n]), n < len(rest))))
			rest = rest[n:]
		}
	})
}

// FuzzRedactor wants no value in what is left, and everything else kept.
func FuzzRedactor(f *testing.F) {
	f.Add("s3cr3t-token", "a ", " b", 3)
	f.Add("a\nbcdef\n", "bcde", "fbcdef", 0)
	f.Add("aaaa", "a", "aa", 5)
	f.Add("\xff\xfe\xfd\xfc", "\xff", "", 1)
	f.Fuzz(func(t *testing.T, value, before, after string, cut int) {
		const marker = "[X]"
		if strings.ContainsAny(value, marker) || strings.Contains(before+after, marker) {
			return // then what is left may be one by chance
		}
		r := redact.New(map[string]string{"X": value})
		line := before + value + after
		got := r.Text(line)
		for part := range strings.SplitSeq(value, "\n") {
			if part = strings.TrimSpace(part); len(part) >= redact.MinBytes {
				require.NotContains(t, got, part)
				require.Contains(t, got, marker)
			}
		}
		if !strings.Contains(got, marker) {
			require.Equal(t, line, got)
		}
		s, n := r.Stream(), min(max(cut, 0), len(line))
		pieces := string(s.Line([]byte(line[:n]), true)) + string(s.Line([]byte(line[n:]), false))
		for part := range strings.SplitSeq(value, "\n") {
			if part = strings.TrimSpace(part); len(part) >= 2*redact.MinBytes {
				require.NotContains(t, pieces, part)
			}
		}
	})
}

func BenchmarkLine(b *testing.B) {
	values := map[string]string{"KEY": strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n", 30)}
	for _, name := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} {
		values[name] = name + "-correct-horse-battery-staple"
	}
	r := redact.New(values)
	line := []byte(strings.Repeat("2026-03-01T12:00:00Z north-pier level=1.25 ok ", 30))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		r.Line(line)
	}
}
