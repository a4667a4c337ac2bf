package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/negctl"
)

func TestNegctlRefusesWhatItDoesNotKnow(t *testing.T) {
	for want, args := range map[string][]string{
		"tidewait: there is no control \"11\"; list them with `tidewait negctl --list`\n":        {"negctl", "--only", "11"},
		"tidewait: there is no sabotage \"drop-all\"; list them with `tidewait negctl --list`\n": {"negctl", "--sabotage", "drop-all"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, runContext(t.Context(), args, nil, &out, &errs))
		require.Equal(t, want, errs.String())
		require.Empty(t, out.String())
	}
}

func TestNegctlLists(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, runContext(t.Context(), []string{"negctl", "--list", "--only", "9", "-o", "json"}, nil, &out, &errs))
	var list struct {
		Controls  []struct{ ID, Provoked, Expected string }
		Sabotages []struct {
			Name   string
			Guards []string
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &list))
	require.Len(t, list.Controls, 1)
	require.Equal(t, "9", list.Controls[0].ID)
	require.Len(t, list.Sabotages, 5)
	require.Equal(t, []string{"5-event"}, list.Sabotages[3].Guards)
}

func TestNegctlText(t *testing.T) {
	c := negctl.Control{ID: "3-full", Provoked: "a full fleet", Expected: "it waits"}
	for want, r := range map[string]negctl.Result{
		"ok in 1.2s: code capacity_memory; runs 0; waited 1s\n":       {OK: true, Observed: []string{"code capacity_memory", "runs 0"}, Measured: []string{"waited 1s"}},
		"FAILED in 1.2s: code is a, must be b\n":                      {Problem: "code is a, must be b", Observed: []string{"runs 0"}},
		"not run in 1.2s: this machine runs no virtual machines: x\n": {OK: true, NotRun: "this machine runs no virtual machines: x"},
	} {
		r.Control, r.Took = c, 1234*time.Millisecond
		require.Equal(t, "3-full     a full fleet\n           → it waits\n           "+want, negctlText(r))
	}
}
