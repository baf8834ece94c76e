"""Reading of health documents: from a file nobody has looked at to facts with their place on the page.

A pure library: no database, no engine, no logging.  README.md says how the parts fit together.

    scan.check          refuses what must not be opened, in a limited child process
    pages.render        page images, in the child too
    ocr.provider        words with boxes
    spatial.layout      lines in reading order
    extract.provider    what the document is, and the facts in it
    normalise.facts     units, dates, codes
    timeline.entry      one line of a person's history

Nothing here writes document text into an exception or a message: errors name the kind of trouble, never the content.
"""
