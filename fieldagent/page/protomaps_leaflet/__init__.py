"""protomaps-leaflet 5.1.0 (https://github.com/protomaps/protomaps-leaflet): a layer for Leaflet
that draws vector tiles. The file is dist/protomaps-leaflet.js of the npm package:

    npm pack protomaps-leaflet@5.1.0
    tar xzf protomaps-leaflet-5.1.0.tgz package/dist/protomaps-leaflet.js

`LICENSE` beside it contains the licenses of all parts.
"""
