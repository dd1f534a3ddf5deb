"""Messages like those of people in the field, in five languages, with their typos, numbers and
names. They were written for this purpose, and no code table was trained on them.
"""

FIELD_MESSAGES = {
    "en": (
        "Arrived at camp, all well",
        "Running 2 hours late, dont wait with dinner",
        "Need 3 more tents and 40 l of water at site B by tomorow morning",
        "Bridge on route 7 is out, take the north track past the old mill",
        "ok",
        "Maria has a sprained ankle, we walk slow. ETA 17:30 at the hut",
        "Can you send the forecast for tonight? Wind is picking up here",
    ),
    "de": (
        "Sind am Lager angekommen, alles gut",
        "Brauchen Nachschub: 2 Kanister Diesel, Batterien AA, Brot",
        "Weg ist gesperrt wegen Lawinengefahr, wir kehren um",
        "Kommen ca. 1 Std später, Jonas hat Blasen an den Füssen",
        "Funk geht nicht, bitte nur noch per Satellit melden",
        "Wetter wird schlechter. Bleiben heute Nacht auf der Hütte, morgen früh gehts weiter",
        "danke, bis morgen",
    ),
    "fr": (
        "Bien arrivés au refuge, tout va bien",
        "On a besoin d'eau et de médicaments pour 12 personnes",
        "La piste est coupée après le village, on fait demi tour",
        "Véhicule 2 en panne, pneu crevé. On repart dans 45 min",
        "RDV demain 8h au pont, apporte la corde stp",
        "Pas de réseau ici, je rappelle ce soir",
        "Le patient est stable, on attend l'hélico a la clairière au sud du lac",
    ),
    "es": (
        "Llegamos al campamento, todo bien",
        "Estamos sin luz desde ayer, manden pilas y un cargador",
        "El rio crecio mucho, no podemos cruzar hasta mañana",
        "Necesitamos medico para Pedro, fiebre 39.5 desde anoche",
        "Salimos a las 6, llegamos a la base como a las 14h",
        "Vale, gracias",
        "Camion atascado en el km 32, hace falta una grua",
    ),
    "it": (
        "Siamo arrivati al rifugio, tutto ok",
        "Nebbia fitta, ci fermiamo qui per la notte",
        "Serve gasolio per il generatore, ne resta per 6 ore",
        "Luca è caduto ma sta bene, torniamo piano piano al bivio",
        "Ci vediamo domani alle 9 al parcheggio vicino alla chiesa",
    ),
}
