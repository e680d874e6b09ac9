package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

type tunedCmd struct {
	Device string `help:"A GPU of this machine: cuda or cuda:N." default:"cuda" placeholder:"NAME"`
	JSON   bool   `help:"Print one JSON object per line." name:"json"`
}

func (c *tunedCmd) Run(e *env) error {
	dev, err := device.Open(c.Device)
	if err != nil {
		return err
	}
	d, ok := dev.(*cuda.Device)
	if !ok {
		return fmt.Errorf("--device %s: its products have no forms to choose from", c.Device)
	}
	list := d.TunedProducts()
	if c.JSON {
		enc := json.NewEncoder(e.out)
		for _, p := range list {
			if err := enc.Encode(p); err != nil {
				return err
			}
		}
		return nil
	}
	emulated := ""
	if d.Info().Emulated {
		emulated = ", whose times are EMULATED"
	}
	if len(list) == 0 {
		how := "a program with FLAMBEAU_TUNE=1 does it"
		if d.Info().Emulated && d.Tuning() == cuda.TuningOff {
			how = "an emulated GPU reads no file without it: FLAMBEAU_TUNE=use lists what FLAMBEAU_TUNE=1 measured"
		}
		_, err := fmt.Fprintf(e.out, "no products were measured on %v%s; %s\n", d, emulated, how)
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PRODUCT\tMODEL'S FORM\tTIME\tMEASURED FORM\tTIME\tRATIO")
	for _, p := range list {
		chosen := p.Chosen
		if chosen == p.Planned {
			chosen = "the same"
		}
		brief := func(t time.Duration) time.Duration { return t.Round(100 * time.Nanosecond) }
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%v\t%.2f\n", p.Product, p.Planned, brief(p.Before), chosen, brief(p.After), p.After.Seconds()/max(p.Before.Seconds(), 1e-12))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	use := "they are not used unless FLAMBEAU_TUNE is 1 or use"
	if t := d.Tuning(); t != cuda.TuningOff {
		use = fmt.Sprintf("FLAMBEAU_TUNE=%v has them used", t)
	}
	_, err = fmt.Fprintf(e.out, "%d products on %v%s; %s\n", len(list), d, emulated, use)
	return err
}
