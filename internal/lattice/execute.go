package lattice

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"tidewait/internal/scaler"
)

// Result is what came of a command. When it is OK, State shows it.
type Result struct {
	OK bool
	// Code is one of scaler's codes of commands. It is empty when nothing was
	// sent, or ctx ended before anything was known.
	Code string
	// Message says why, in the host's own words where it has any.
	Message string
}

var done = Result{OK: true}

// Execute carries a command out: once, and until it is known what came of it.
// Whatever is said of it, the host's inventory is what decides where it can be
// had. Nothing is sent unless Run is running.
func (o *Observer) Execute(ctx context.Context, c scaler.Command) Result {
	if !o.running() {
		return Result{Message: "not sent: the lattice is not observed"}
	}
	switch c.Action {
	case scaler.Scale, scaler.StartProvider, scaler.StopProvider:
		return o.onInstances(ctx, c)
	case scaler.PutConfig, scaler.DeleteConfig:
		return o.onConfig(ctx, c)
	case scaler.PutLink, scaler.DeleteLink:
		if c.Link == nil {
			break
		}
		return o.onLink(ctx, c)
	}
	return Result{Code: scaler.CodeCommandFailed, Message: fmt.Sprintf("there is no such command: %s of %q", c.Action, c.ID)}
}

// failure is the result of a command that could not be sent, or was answered
// with a no, or not at all.
func failure(ctx context.Context, err error) Result {
	var refused *Refused
	var invalid *InvalidName
	switch {
	case ctx.Err() != nil:
		return Result{Message: "given up: " + ctx.Err().Error()}
	case errors.As(err, &refused):
		return Result{Code: scaler.CodeCommandRefused, Message: refused.Message}
	case errors.As(err, &invalid):
		return Result{Code: scaler.CodeCommandRefused, Message: invalid.Error()}
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrNobody), errors.Is(err, ErrCutOff):
		return Result{Code: scaler.CodeCommandTimedOut, Message: err.Error()}
	}
	return Result{Code: scaler.CodeCommandFailed, Message: err.Error()}
}

// onConfig takes the reply for the outcome. Without one it looks.
func (o *Observer) onConfig(ctx context.Context, c scaler.Command) Result {
	put := c.Action == scaler.PutConfig
	var err error
	if put {
		err = o.client.PutConfig(ctx, c.ID, c.Values)
	} else {
		err = o.client.DeleteConfig(ctx, c.ID)
	}
	if errors.Is(err, ErrTimeout) {
		values, found, ask := o.client.Config(ctx, c.ID)
		if ask == nil && found == put && (!put || maps.Equal(values, c.Values)) {
			err = nil
		}
	}
	if err != nil {
		return failure(ctx, err)
	}
	o.ownConfig(c.ID, c.Values, put)
	return done
}

// onLink takes the reply for the outcome. Without one it looks.
func (o *Observer) onLink(ctx context.Context, c scaler.Command) Result {
	put := c.Action == scaler.PutLink
	var err error
	if put {
		err = o.client.PutLink(ctx, *c.Link)
	} else {
		err = o.client.DeleteLink(ctx, c.Link.Tuple())
	}
	if errors.Is(err, ErrTimeout) && o.linkIs(ctx, *c.Link, put) {
		err = nil
	}
	switch {
	case err != nil:
		return failure(ctx, err)
	case put:
		o.ownLink(func(p *Projection) Change { return p.PutLink(*c.Link) })
	default:
		o.ownLink(func(p *Projection) Change { return p.DeleteLink(c.Link.Tuple()) })
	}
	return done
}

// linkIs asks whether a link is as it was put, or not there.
func (o *Observer) linkIs(ctx context.Context, want scaler.Link, put bool) bool {
	links, err := o.client.Links(ctx)
	if err != nil {
		return false
	}
	for _, l := range links {
		if l.Tuple() == want.Tuple() {
			return put && sameLink(l, want)
		}
	}
	return !put
}

// attempt is a command on instances while it is carried out.
type attempt struct {
	*Observer
	scaler.Command
	expected *expectation
	answered bool   // or known to stay without an answer
	accepted bool   // the host has answered that it will try
	early    *news  // that came before the answer
	warning  string // of the host: it runs another image
	runs     string // that image
}

// answer is what a host says at once.
type answer struct {
	warning string
	err     error
}

func (o *Observer) onInstances(ctx context.Context, c scaler.Command) Result {
	a := &attempt{Observer: o, Command: c, expected: expect(c)}
	o.await(a.expected)
	defer o.forget(a.expected)

	limit := o.settings.Component
	if c.Action != scaler.Scale {
		limit = o.settings.Provider
	}
	answers, end, unaccepted := a.send(ctx), o.after(limit), o.after(o.settings.Unacknowledged)
	unheard := o.after(o.settings.Unheard)
	for {
		var result Result
		var known bool
		select {
		case said := <-answers:
			result, known = a.reply(ctx, said)
		case n := <-a.expected.news:
			result, known = a.learn(ctx, n)
		case <-unaccepted:
			if !a.accepted {
				return a.late(ctx, fmt.Sprintf("host %s has not answered for %s", c.Host, o.settings.Unacknowledged))
			}
		case <-unheard: // the event may be lost
			result, known = a.check(ctx)
			unheard = o.after(o.settings.Unheard)
		case <-end:
			return a.late(ctx, fmt.Sprintf("host %s took the command, and nothing has come of it for %s", c.Host, limit))
		case <-ctx.Done():
			return failure(ctx, ctx.Err())
		}
		if known {
			return result
		}
	}
}

// send sends the command, once.
func (a *attempt) send(ctx context.Context) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		var said answer
		switch a.Action {
		case scaler.StartProvider:
			said.err = a.client.StartProvider(ctx, Provider{a.Host, a.ID, a.Image, a.Config, a.Annotations})
		case scaler.StopProvider:
			said.err = a.client.StopProvider(ctx, a.Host, a.ID)
		default:
			said.warning, said.err = a.client.Scale(ctx, a.component())
		}
		answers <- said
	}()
	return answers
}

// component is what a host is told. It fetches whatever image is named, even to
// stop a component, and does not stop it when what it fetches is not as it
// should be; so none is named.
func (a *attempt) component() Component {
	c := Component{a.Host, a.ID, a.Image, a.Count, a.Config, a.Annotations}
	if c.Count == 0 {
		c.Image, c.Config = "", nil
	}
	return c
}

// reply takes up what the host said at once.
func (a *attempt) reply(ctx context.Context, said answer) (result Result, known bool) {
	a.answered = true
	var refused *Refused
	switch {
	case said.err == nil && a.Action == scaler.StopProvider:
		return a.stopped(ctx), true
	case said.err == nil:
		a.accepted = true
		a.warned(said.warning)
		if a.early != nil {
			return a.learn(ctx, *a.early)
		}
		return Result{}, false
	case errors.Is(said.err, ErrTimeout):
		// It may still happen: the answer was lost, or the host is busy.
		there, asked := a.look(ctx)
		return a.succeeded(), asked && there
	case errors.As(said.err, &refused):
		if a.nothingToDo(ctx) {
			return done, true
		}
	case errors.Is(said.err, ErrNobody):
		a.suspect()
	}
	return failure(ctx, said.err), true
}

// learn takes up what an event said.
func (a *attempt) learn(ctx context.Context, n news) (result Result, known bool) {
	switch {
	case n.kind == left || n.kind == restarted:
		return a.abandoned(n.kind), true
	case n.kind == failed:
		if a.nothingToDo(ctx) {
			return done, true
		}
		return Result{Code: scaler.CodeCommandFailed, Message: n.words}, true
	case !a.answered && a.Action == scaler.Scale && a.Count > 0:
		// Only the answer says whether another image runs.
		a.early = &n
		return Result{}, false
	}
	if n.image != "" && n.image != a.Image {
		a.runs = n.image
	}
	if there, asked := a.look(ctx); asked && !there {
		return Result{}, false // the event was of an earlier command
	}
	return a.succeeded(), true
}

// abandoned is the result of a command whose host is gone, or has begun a new
// life. Nothing of the old one runs there.
func (a *attempt) abandoned(kind newsKind) Result {
	if a.expected.stop {
		return done
	}
	sentence := "host %s is gone"
	if kind == restarted {
		sentence = "host %s has started again since it got the command"
	}
	return Result{Code: scaler.CodeCommandFailed, Message: fmt.Sprintf(sentence, a.Host)}
}

// warned notes what really runs on a host that says it is not the image it was
// told. To stop that is what was wanted.
func (a *attempt) warned(warning string) {
	if warning == "" || a.Count == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warning, a.runs = warning, "an unknown image"
	if e, there := a.known.Entry(a.Host, false, a.ID); there && e.Image != a.Image {
		a.runs = e.Image
	}
}

// succeeded is the result of a command after which the host has what it was
// told, unless it said that it runs another image: which it will deny from now
// on.
func (a *attempt) succeeded() Result {
	if a.warning == "" {
		return done
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fold(a.known.Pin(a.Host, a.ID, a.runs))
	return Result{Code: scaler.CodeCommandFailed, Message: a.warning}
}

// check looks whether a command was carried out that the host has taken and no
// event has told of.
func (a *attempt) check(ctx context.Context) (result Result, known bool) {
	if !a.accepted {
		return Result{}, false
	}
	if there, asked := a.look(ctx); !asked || !there {
		return Result{}, false
	}
	return a.succeeded(), true
}

// late looks for the last time when nothing was heard for too long.
func (a *attempt) late(ctx context.Context, sentence string) Result {
	there, asked := a.look(ctx)
	switch {
	case asked && there:
		return a.succeeded()
	case ctx.Err() != nil:
		return failure(ctx, ctx.Err())
	case asked:
		sentence += "; what it runs has not changed"
	default:
		sentence += "; nor does it say what it runs"
	}
	return Result{Code: scaler.CodeCommandTimedOut, Message: sentence}
}

// stopped is the result of a command to stop a provider that the host says it
// has carried out.
func (a *attempt) stopped(ctx context.Context) Result {
	if there, asked := a.look(ctx); asked && !there {
		return Result{Code: scaler.CodeCommandFailed, Message: fmt.Sprintf("host %s says that it has stopped %s, and goes on running it", a.Host, a.ID)}
	}
	return done
}

// look asks the host what it runs, and reports whether that is what was wanted.
// It is not known when asked is false.
func (a *attempt) look(ctx context.Context) (there, asked bool) {
	a.mu.Lock()
	outcome := a.inquire(a.Host)
	a.mu.Unlock()
	select {
	case err := <-outcome:
		if err != nil {
			return false, false
		}
	case <-ctx.Done():
		return false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.expected.met(a.known.Entry(a.Host, a.expected.key.provider, a.ID)), true
}

// nothingToDo looks whether a host that said no has what was asked for: the
// provider that runs already, the provider that does not.
func (a *attempt) nothingToDo(ctx context.Context) bool {
	if a.Action == scaler.Scale {
		return false
	}
	if there, asked := a.look(ctx); !asked || !there {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e, _ := a.known.Entry(a.Host, true, a.ID)
	return a.expected.stop || maps.Equal(e.Annotations, a.Annotations)
}

// suspect has a host asked that nobody listens for.
func (a *attempt) suspect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inquire(a.Host)
}
