package workflows

import (
	"fmt"
	"strings"

	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/internal/webui"
)

// machines is how many machines a phase has.
func (c PhaseCommand) machines() int {
	n := 0
	for _, a := range c.Agents {
		n += a.Replicas
	}
	return max(n, 1)
}

// total is what all machines of a phase get.
func (c PhaseCommand) total() vm.Spec {
	sum := c.Machine
	for _, a := range c.Agents {
		sum.CPUMilli += a.Machine.CPUMilli * int64(a.Replicas)
		sum.MemoryMiB += a.Machine.MemoryMiB * int64(a.Replicas)
		sum.DiskMiB += a.Machine.DiskMiB * int64(a.Replicas)
	}
	return sum
}

// commands lists what a phase runs, in markdown.
func (c PhaseCommand) commands() string {
	if len(c.Agents) == 0 {
		return fmt.Sprintf("- **command:** `%s`\n", clip(strings.Join(c.Command.Argv, " ")))
	}
	text := ""
	for _, a := range c.Agents {
		text += fmt.Sprintf("- **%s:** `%s`", a.Name, clip(strings.Join(a.Command.Argv, " ")))
		if a.Replicas > 1 {
			text += fmt.Sprintf(", in %d machines", a.Replicas)
		}
		if !a.Designated {
			text += ", until the others are done"
		}
		text += "\n"
	}
	return text
}

// running says what runs where a phase has more than one machine.
func (c PhaseCommand) running() string {
	if len(c.Agents) == 0 {
		return ""
	}
	return webui.Item("machines", fmt.Sprint(c.machines())) + c.commands()
}

// agentsVerdict returns why a composed phase failed; no code: it did not.
func agentsVerdict(c PhaseCommand, res ExecuteRunResult) (code, sentence string) {
	if res.Failed == "" {
		return "", ""
	}
	for _, r := range res.Agents {
		for _, a := range c.Agents {
			if r.Name == res.Failed && r.Agent == a.Name && r.Exit != nil {
				code, sentence = exitVerdict(a.Command, a.Machine, *r.Exit)
				return code, "agent " + r.Name + ": " + sentence
			}
		}
	}
	return codeInternal, fmt.Sprintf("agent %s: the node did not say how its command ended", res.Failed)
}

// agentEnds is what is recorded of the machines of a composed phase.
func agentEnds(res ExecuteRunResult) []ledger.AgentEnd {
	var ends []ledger.AgentEnd
	for _, a := range res.Agents {
		ends = append(ends, ledger.AgentEnd{
			Name: a.Name, Status: a.status(), Info: a.Info, Exit: a.Exit, Collected: a.Results != nil,
			FailureCode: a.FailureCode, Failure: a.Failure,
		})
	}
	return ends
}

func (a AgentResult) status() string {
	switch {
	case a.Stopped:
		return ledger.AgentStopped
	case a.FailureCode != "":
		return ledger.AgentFailed
	case a.Exit == nil:
		return ledger.AgentLost
	case a.Exit.Code == 0 && a.Exit.Signal == "":
		return ledger.AgentSucceeded
	}
	return ledger.AgentFailed
}

// resultsParts are the results of the machines of a composed phase.
func resultsParts(res ExecuteRunResult) []ResultsPart {
	var parts []ResultsPart
	for _, a := range res.Agents {
		if a.Results != nil {
			parts = append(parts, ResultsPart{Agent: a.Name, Results: *a.Results, Deleted: a.Deleted})
		}
	}
	return parts
}

// notKept says of which machines of a cancelled run nothing could be kept.
func notKept(res ExecuteRunResult) string {
	var names []string
	for _, a := range res.Agents {
		if a.Results == nil {
			names = append(names, a.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; nothing could be kept of " + strings.Join(names, ", ")
}

// agentsMarkdown says how each machine of a composed phase ended.
func agentsMarkdown(ends []ledger.AgentEnd) string {
	if len(ends) == 0 {
		return ""
	}
	text := "\n**machines**\n\n"
	for _, a := range ends {
		text += fmt.Sprintf("- **%s:** %s", a.Name, a.Status)
		switch {
		case a.Failure != "":
			text += ": " + webui.Plain(a.Failure)
		case a.Exit != nil && a.Exit.OOM:
			text += ", out of memory"
		case a.Exit != nil && a.Exit.Signal != "":
			text += ", killed by " + a.Exit.Signal
		case a.Exit != nil:
			text += fmt.Sprintf(", exit %d", a.Exit.Code)
		}
		text += "\n"
	}
	return text
}
