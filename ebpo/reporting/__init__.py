"""Tables, figures and the HTML report; reads the files of an experiment and nothing else, and never imports torch."""
