// Package webui writes the Markdown that Temporal's Web UI shows of a workflow: its
// static details and its current ones. It is pure.
package webui

import (
	"fmt"
	"net/url"
	"strings"

	"tidewait/internal/api"
)

// PageEnd ends a page. The Web UI cuts off a page's last pixels: they are a line's.
const PageEnd = "\n---\n"

// Item is a line of a list that begins with what it is about.
func Item(about, text string) string { return fmt.Sprintf("- **%s:** %s\n", about, text) }

var markup = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`, `<`, `\<`)

// Plain is a text of somebody else, such as a host, on one line and without markup.
func Plain(s string) string { return markup.Replace(strings.Join(strings.Fields(s), " ")) }

// By is who did something, as they said.
func By(actor string) string {
	if actor == "" {
		return "somebody"
	}
	return Plain(actor)
}

// Link is a link to the page of a workflow's newest run. The Web UI puts the
// namespace in.
func Link(text, workflowID string) string {
	return fmt.Sprintf("[%s](/namespaces/{namespace}/workflows/%s)", text, url.PathEscape(workflowID))
}

// YouCan lists what a person can do; nothing when there is nothing.
func YouCan(remedies ...api.Remedy) string {
	if len(remedies) == 0 {
		return ""
	}
	text := "\n**you can**\n\n"
	for _, r := range remedies {
		text += remedy(r)
	}
	return text
}

// remedy names the ways that lead on from the page: another page rather than a
// command that shows the same.
func remedy(r api.Remedy) string {
	var ways []string
	switch {
	case r.Workflow != "":
		ways = append(ways, Link(r.Workflow, r.Workflow))
	case r.Command != "":
		ways = append(ways, Code(r.Command))
	}
	if r.Signal != "" {
		ways = append(ways, fmt.Sprintf("signal `%s` with input `%s`", r.Signal, r.Input))
	}
	if len(ways) == 0 {
		return "- " + r.What + "\n"
	}
	return "- " + r.What + ": " + strings.Join(ways, ", or ") + "\n"
}

// Code is a text as it is. Where it has a backquote in it, two stand around it.
func Code(text string) string {
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}
