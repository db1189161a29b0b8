package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzStateFile shows that a state file of any content only adds its own answers. With a wrong
// checksum nothing is read.
func FuzzStateFile(f *testing.F) {
	f.Add([]byte(`[{"by":0,"text":"greeter","services":[{"Name":"greeter"}],"endpoints":[{"service":0,"endpoint":{"Host":"10.0.0.1","Port":80}}]}]`), false)
	f.Add([]byte(`[{"endpoints":[{"service":-1},{"service":7}]}]`), false)
	f.Add([]byte(`[{"services":[null],"endpoints":[{}]}]`), false)
	f.Add([]byte(`[]`), true)
	f.Add([]byte(`null`), false)
	f.Fuzz(func(t *testing.T, answers []byte, forged bool) {
		sum := sha256.Sum256(answers)
		if forged {
			sum[0]++
		}
		file, err := json.Marshal(stateFile{Version: stateVersion, Sum: hex.EncodeToString(sum[:]), Answers: answers})
		if err != nil {
			file = answers
		}
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openState(Options{StateFile: path, StateAge: 1000 * 24 * time.Hour, Log: slog.New(slog.DiscardHandler)}, "")
		if forged && len(s.answers) > 0 {
			t.Error("read with a wrong checksum")
		}
		for q := range s.answers {
			got, _ := s.lookup(q)
			for _, e := range got.Endpoints {
				if e.service == nil {
					t.Errorf("%v has an endpoint of no service", q)
				}
			}
		}
	})
}
