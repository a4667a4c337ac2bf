package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

type closingBuffer struct{ bytes.Buffer }

func (*closingBuffer) Close() error { return nil }

var _ io.WriteCloser = (*closingBuffer)(nil)

func TestSection(t *testing.T) {
	var out closingBuffer
	r := &results{w: &out}
	require.NoError(t, r.section("freed", "1.50", []line{
		{measure: "8 clients: place, 100 a pass", figure: sample{400, 500}, unit: "/s", reference: "INSERT", known: sample{4000, 2500}},
		{measure: "8 clients: place, 100 a pass", figure: sample{400, 500}, unit: "/s", reference: "Nomad's dev agent, noted", known: sample{100}},
		{measure: "goodbye of a host → each of 114 commands, p50", name: "goodbye to each command, p50", figure: sample{768}, unit: " ms"},
		{measure: "phase", figure: sample{20}, unit: " events"},
		{measure: "engine, resident", figure: sample{2}, unit: " MiB"},
	}))
	require.Equal(t, `load-freed: 1.50
BenchmarkTidewait/freed/8_clients_place_100_a_pass 1 400 1/s
BenchmarkTidewait/freed/8_clients_place_100_a_pass 1 500 1/s
BenchmarkTidewait/freed/8_clients_place_100_a_pass/vs=insert 1 0.1 x-rate
BenchmarkTidewait/freed/8_clients_place_100_a_pass/vs=insert 1 0.2 x-rate
BenchmarkTidewait/freed/8_clients_place_100_a_pass/vs=nomad_s_dev_agent_noted 1 4 x-rate
BenchmarkTidewait/freed/8_clients_place_100_a_pass/vs=nomad_s_dev_agent_noted 1 5 x-rate
BenchmarkTidewait/freed/goodbye_to_each_command_p50 1 0.768 sec
BenchmarkTidewait/freed/phase 1 20 events
BenchmarkTidewait/freed/engine_resident 1 2.097152e+06 B
`, out.String())
}
