package guest

import (
	"fmt"
	"path"
	"strings"
)

// Globs is a list of slash-separated patterns. In a segment *, ? and [...] mean
// what they mean to [path.Match]; a segment ** stands for any number of
// segments, at least one at the end of a pattern. A pattern that ends with a
// slash means everything below it. The empty list matches everything.
type Globs [][]string

// ParseGlobs checks and splits patterns.
func ParseGlobs(patterns []string) (Globs, error) {
	var globs Globs
	for _, p := range patterns {
		segments, err := parseGlob(p)
		if err != nil {
			return nil, err
		}
		globs = append(globs, segments)
	}
	return globs, nil
}

func parseGlob(pattern string) ([]string, error) {
	p := strings.TrimPrefix(pattern, "./")
	if strings.HasSuffix(p, "/") {
		p += "**"
	}
	segments := strings.Split(p, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return nil, fmt.Errorf("the pattern %q must be a relative path without empty, . or .. segments", pattern)
		}
		if _, err := path.Match(s, ""); err != nil {
			return nil, fmt.Errorf("the pattern %q: %w", pattern, err)
		}
	}
	return segments, nil
}

// Match reports whether name, a clean relative path, matches any pattern.
func (g Globs) Match(name string) bool {
	if len(g) == 0 {
		return true
	}
	segments := strings.Split(name, "/")
	for _, pattern := range g {
		if matchSegments(pattern, segments) {
			return true
		}
	}
	return false
}

// matchSegments remembers only the last **, which is enough: what an earlier
// one stands for never needs to grow once a later one is reached. It takes at
// most len(pattern) * len(name) steps.
func matchSegments(pattern, name []string) bool {
	p, n := 0, 0
	star, starName := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			if p == len(pattern)-1 {
				return true
			}
			star, starName = p, n
			p++
		case p < len(pattern) && matchSegment(pattern[p], name[n]):
			p++
			n++
		case star >= 0:
			starName++
			p, n = star+1, starName
		default:
			return false
		}
	}
	return p == len(pattern)
}

func matchSegment(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
