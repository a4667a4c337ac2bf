package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// fileVariable names the settings file; it is no setting itself.
const fileVariable = envPrefix + "CONFIG"

// Options says where Load looks.
type Options struct {
	// File is the settings file. Empty: the one TIDEWAIT_CONFIG names, else
	// ./tidewait.yaml, else /etc/tidewait/tidewait.yaml, else none.
	File string
	// Env holds NAME=value pairs. Nil: the environment of the process. An
	// empty value counts as not set.
	Env []string
	// Flags holds the flags of a command; nil: none. A flag that was given on
	// the command line and is named like a key, with dashes for underscores
	// (--fleet.max-wait), sets that key. Flags with other names are left alone.
	Flags *pflag.FlagSet
	// FlagKeys maps further flag names to keys, such as "log-level" to "log.level".
	FlagKeys map[string]string
}

// Load reads the settings: defaults, then the file, then the environment, then
// the flags, the later winning. Every layer is checked, and so are the values
// that win; what is refused is told in one error of type Faults. DataDir of the
// result is absolute.
func Load(o Options) (Settings, error) {
	environment := environmentOf(o.Env)
	l := newLayers()
	if path := locate(o.File, environment); path != "" {
		if err := l.readFile(path); err != nil {
			return Settings{}, err
		}
	}
	l.readEnvironment(environment)
	if err := l.readFlags(o.Flags, o.FlagKeys); err != nil {
		return Settings{}, err
	}
	return l.settle()
}

// A setting is the value of a key in one layer.
type setting struct {
	value  any
	text   string // as it was written
	origin string // where
}

// layers gathers settings, each layer over the one before.
type layers struct {
	merged  *viper.Viper
	winning map[string]setting // by key name
	faults  Faults
}

func newLayers() *layers {
	l := &layers{merged: viper.New(), winning: map[string]setting{}}
	defaults := Defaults()
	for _, k := range keys {
		value := k.of(&defaults)
		l.merged.SetDefault(k.name, value)
		l.winning[k.name] = setting{value: value, text: written(value), origin: "default"}
	}
	return l
}

func (l *layers) set(k key, s setting) {
	l.merged.Set(k.name, s.value)
	l.winning[k.name] = s
}

func (l *layers) refuse(f Fault) { l.faults = append(l.faults, f) }

func environmentOf(pairs []string) map[string]string {
	if pairs == nil {
		pairs = os.Environ()
	}
	environment := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, envPrefix) && value != "" {
			environment[name] = value
		}
	}
	return environment
}

func (l *layers) readEnvironment(environment map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		if name == fileVariable {
			continue
		}
		k, known := keyByEnv[name]
		if !known {
			l.refuse(Fault{
				Key: name, Origin: "environment",
				Want: "no such setting; a variable is TIDEWAIT_ and a key, such as TIDEWAIT_FLEET_MAX_WAIT for fleet.max_wait",
			})
			continue
		}
		l.readText(k, environment[name], name)
	}
}

func (l *layers) readFlags(flags *pflag.FlagSet, names map[string]string) error {
	if flags == nil {
		return nil
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		name, mapped := names[f.Name]
		if !mapped {
			name = strings.ReplaceAll(f.Name, "-", "_")
		}
		k, known := keyByName[name]
		switch {
		case known:
			l.readText(k, flagText(f), "--"+f.Name)
		case mapped:
			err = fmt.Errorf("flag --%s is bound to %s, which is no key", f.Name, name)
		}
	})
	return err
}

// flagText is a flag's value as a person would have written it in one word;
// lists and maps print themselves in brackets.
func flagText(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "stringSlice", "stringArray", "stringToString":
		return strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]")
	default:
		return f.Value.String()
	}
}

func (l *layers) readText(k key, text, origin string) {
	value, ok := parse(k.typ, text)
	if !ok {
		l.refuse(Fault{Key: k.name, Value: shown(k.name, text), Origin: origin, Want: wanted(k.typ)})
		return
	}
	l.set(k, setting{value: value, text: text, origin: origin})
}

// settle turns the merged layers into checked settings.
func (l *layers) settle() (Settings, error) {
	var s Settings
	if err := l.merged.Unmarshal(&s); err != nil {
		return Settings{}, fmt.Errorf("cannot put the settings together: %w", err)
	}
	l.faults = append(l.faults, check(&s, l.winning, l.faults)...)
	if len(l.faults) > 0 {
		return Settings{}, l.faults
	}
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return Settings{}, fmt.Errorf("cannot make data_dir %s absolute: %w", s.DataDir, err)
	}
	s.DataDir = dir
	return s, nil
}
