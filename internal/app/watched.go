package app

import (
	"crypto/sha256"

	"github.com/xds-bridge/xds-bridge/config"
)

// watched is a file whose content may change. It is read by its name each
// time, so that links to another file, as Kubernetes renews a ConfigMap by,
// are followed.
type watched struct {
	path      string
	used      [sha256.Size]byte // what was taken last, whatever came of it
	candidate [sha256.Size]byte // what was seen last
}

// taken notes that the file was read as it is now.
func (w *watched) taken() {
	w.used, _ = w.sum()
	w.candidate = w.used
}

// changed reports whether the file holds something that was not taken yet and
// is the same as at the look before: a file that is being written is left
// alone. One that cannot be read has not changed.
func (w *watched) changed() bool {
	now, ok := w.sum()
	if !ok {
		return false
	}
	still := now == w.candidate
	w.candidate = now
	return still && now != w.used
}

func (w *watched) sum() (sum [sha256.Size]byte, ok bool) {
	content, err := config.ReadFile(w.path)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(content), true
}
