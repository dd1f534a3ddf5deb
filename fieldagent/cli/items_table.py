"""Arguments of the kinds of items, for the tables of `send` and `push`."""

from __future__ import annotations

ITEMS = r"""
@message
  content: the text; - reads standard input
@position
  place+: degrees: 47.3769 8.5417, 47,3769 8,5417 or "47° 22' 36.8\" N" "8° 32' 30\" E"; UTM or
      MGRS: 32T 465000 5247000 or 32T MT 65000 47000; WGS84
  --timestamp TIMESTAMP: ISO 8601; now otherwise
@location
  @position
  --altitude decimal: metres above mean sea level
  --speed decimal: speed over ground, m/s
  --course decimal: degrees clockwise from true north
@waypoint
  @position
  name: name of the place
  --notes NOTES: text about the place
@data
  file: the file to send; - reads standard input
@picture
  file: JPEG, PNG, WebP, AVIF or GIF; - reads standard input
  --bytes N 1..10000000 >most_bytes: scale the picture to at most N bytes, as WebP; needs Pillow
"""
