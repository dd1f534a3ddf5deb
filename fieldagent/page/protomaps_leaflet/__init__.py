"""protomaps-leaflet 5.1.0 (https://github.com/protomaps/protomaps-leaflet): a layer of Leaflet's
that draws vector tiles. It is dist/protomaps-leaflet.js as npm has it:

    npm pack protomaps-leaflet@5.1.0
    tar xzf protomaps-leaflet-5.1.0.tgz package/dist/protomaps-leaflet.js

`LICENSE` beside it has the licenses of all that is in it.
"""
