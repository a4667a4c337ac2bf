package guest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tidewait/internal/vm"
)

// Bounds of what a guest says of itself and of its command, all of which is kept
// in the ledger and shown to people.
const (
	maxKernel  = 128     // bytes of a kernel's release and of a boot id
	maxMessage = 1 << 10 // bytes of a failure's sentence
	maxCode    = 255     // of an exit
)

// guestCodes are the failures that a guest may report in place of each answer.
// Others, such as the end of a turn, are the host's to find.
var guestCodes = map[Kind][]vm.FailureCode{
	KindReady:  {vm.BootFailed, vm.ImageInvalid},
	KindPutOK:  {vm.InjectFailed},
	KindExit:   {vm.CommandNotFound},
	KindTarEnd: {vm.CollectFailed, vm.ResultsTooLarge},
}

var signalName = regexp.MustCompile(`^SIG[A-Z0-9]{1,12}$`)

// believable says what is wrong with a decoded control frame.
func believable(v any) error {
	switch v := v.(type) {
	case *Hello:
		return plain("kernel", v.Kernel, maxKernel)
	case *Ready:
		return plain("boot id", v.BootID, maxKernel)
	case *vm.Exit:
		if v.Code < 0 || v.Code > maxCode {
			return fmt.Errorf("%w: a command cannot exit with code %d", ErrProtocol, v.Code)
		}
		if v.Signal != "" && !signalName.MatchString(v.Signal) {
			return fmt.Errorf("%w: %.40q is no signal", ErrProtocol, v.Signal)
		}
	}
	return nil
}

// plain wants a short text that can be printed.
func plain(what, text string, most int) error {
	if len(text) > most || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: the guest says its %s is %.40q", ErrProtocol, what, text)
	}
	return nil
}

// failureOf is the failure that a guest reports in place of an answer, in words that
// can be kept and shown.
func failureOf(due Kind, f Fail) error {
	if !slices.Contains(guestCodes[due], f.Code) {
		return fmt.Errorf("%w: FAIL has the code %.40q, which is not the guest's to give", ErrProtocol, string(f.Code))
	}
	return &vm.Failure{Code: f.Code, Message: sentence(f.Message)}
}

// sentence makes a text printable, and no longer than maxMessage.
func sentence(text string) string {
	cut := len(text) > maxMessage
	if cut {
		text = text[:maxMessage]
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if cut {
		text += "…"
	}
	return text
}
