package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/mission"
)

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		text string
	}{
		{failed("no"), 1, "tidewait: no"},
		{errors.New("plain"), 1, "tidewait: plain"},
		{usage("wrong"), 2, "tidewait: wrong"},
		{
			&mission.Invalid{Findings: []mission.Finding{
				{File: "m.yaml", Line: 3, Column: 5, Key: "spec.backend", Found: `"qemu"`, Problem: "is not allowed", Allowed: "write microvm"},
				{File: "m.yaml", Line: 9, Column: 1, Found: "the list", Problem: "is empty"},
			}},
			2, "m.yaml:3:5: spec.backend: \"qemu\" is not allowed; write microvm\nm.yaml:9:1: the list is empty",
		},
		{config.Faults{{Key: "fleet.turn", Want: "want more"}}, 2, "tidewait: setting refused: fleet.turn: want more"},
		{&fault{exitCapability, errors.New("never")}, 3, "tidewait: never"},
		{&fault{exitWaitExceeded, errors.New("too long")}, 4, "tidewait: too long"},
		{unreachable("down"), 5, "tidewait: down"},
		{fmt.Errorf("asking: %w", serviceerror.NewUnavailable("gone")), 5, "tidewait: asking: gone"},
		{refusal(&api.Error{Code: "not_found", Message: "no mission x"}), 1, "tidewait: no mission x"},
		{refusal(&api.Error{Code: "conflict", Message: "busy"}), 1, "tidewait: busy"},
		{refusal(&api.Error{Code: "internal", Message: "broken"}), 1, "tidewait: broken"},
		{refusal(&api.Error{Code: "invalid", Message: "bad limit"}), 2, "tidewait: bad limit"},
		{refusal(&api.Error{Code: "unavailable", Message: "no database"}), 5, "tidewait: no database"},
		{context.Canceled, 130, "tidewait: interrupted"},
		{interrupted("interrupted; it goes on"), 130, "tidewait: interrupted; it goes on"},
		{fmt.Errorf("wrapped: %w", usage("wrong")), 2, "tidewait: wrapped: wrong"},
	} {
		require.Equal(t, test.code, exitCode(test.err), test.text)
		require.Equal(t, test.text, message(test.err))
	}
	require.Equal(t, 0, exitCode(nil))
}

func TestAMissionsFateIsTheExitCode(t *testing.T) {
	for _, test := range []struct {
		result api.MissionResult
		code   int
		text   string
	}{
		{api.MissionResult{Mission: "m", Status: "succeeded"}, 0, ""},
		{api.MissionResult{Mission: "m", Status: "failed", FailureCode: "command_failed", Failure: "phase build: exit 3"}, 1, "tidewait: mission m failed: phase build: exit 3"},
		{api.MissionResult{Mission: "m", Status: "cancelled"}, 1, "tidewait: mission m cancelled"},
		{api.MissionResult{Mission: "m", Status: "draft", FailureCode: "exceeds_every_node", Failure: "too large"}, 3, "tidewait: mission m stays draft: too large"},
		{api.MissionResult{Mission: "m", Status: "failed", FailureCode: "wait_exceeded", Failure: "waited 2 h"}, 4, "tidewait: mission m failed: waited 2 h"},
	} {
		err := fate(test.result)
		require.Equal(t, test.code, exitCode(err))
		if test.text != "" {
			require.Equal(t, test.text, message(err))
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, test := range []struct {
		args []string
		text string
	}{
		{[]string{"misson"}, "tidewait: unknown command \"misson\" for \"tidewait\"; did you mean mission?; see `tidewait --help`\n"},
		{[]string{"mission", "lunch"}, "tidewait: unknown command \"lunch\" for \"tidewait mission\"; did you mean launch?; see `tidewait mission --help`\n"},
		{[]string{"mission", "show"}, "tidewait: accepts 1 arg(s), received 0; see `tidewait mission show --help`\n"},
		{[]string{"waits", "--nope"}, "tidewait: unknown flag: --nope; see `tidewait waits --help`\n"},
		{[]string{"waits", "-o", "xml"}, "tidewait: --output \"xml\" is not one of table, json, yaml; see `tidewait waits --help`\n"},
		{[]string{"mission", "results", "m", "--into", ".", "--diff"}, "tidewait: --diff, --stat, --export and --into are different questions; ask one\n"},
		{[]string{"mission", "results", "m", "--into", ".", "--phase", "p"}, "tidewait: --into fetches the whole branch; leave out --phase\n"},
		{[]string{"mission", "results", "m", "--push"}, "tidewait: --push pushes what --into has fetched; add --into DIR\n"},
		{[]string{"node", "drain", "a", "--deadline", "-1s"}, "tidewait: --deadline -1s is negative; give the time that running phases have left, such as 30m\n"},
		{[]string{"waits", "--config", "/nonexistent/tidewait.yaml"}, "tidewait: cannot read the settings file: open /nonexistent/tidewait.yaml: no such file or directory\n"},
		{[]string{"waits", "--nats.url", "http://x"}, "tidewait: setting refused: nats.url = \"http://x\" (--nats.url): want nats://host:port, tls://host:port, ws:// or wss://, several separated by commas\n"},
	} {
		got := tidewait(test.args...)
		require.Equal(t, outcome{2, "", test.text}, got, "%q", test.args)
	}
}

func TestEveryCommandShowsAnExample(t *testing.T) {
	var walk func(path []string)
	walk = func(path []string) {
		got := tidewait(append(path, "--help")...)
		require.Equal(t, 0, got.code, path)
		require.Contains(t, got.out, "Examples:\n  tidewait ", path)
		cmd, _, err := rootCommand(&cli{}).Find(path)
		require.NoError(t, err)
		for _, child := range cmd.Commands() {
			walk(append(append([]string(nil), path...), child.Name()))
		}
	}
	walk(nil)
}
