package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
)

// EnablePeerAccess returns an error if two GPUs cannot copy directly. Their copies then pass
// through the host's memory.
func ExampleEnablePeerAccess() {
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB,peer=off")
	if err != nil {
		log.Fatal(err)
	}
	err = cuda.EnablePeerAccess(gpus[1], gpus[0])
	var p *cuda.PeerError
	fmt.Println(errors.As(err, &p), p.Device, p.Peer)
	// Output: true cuda:1 cuda:0
}
