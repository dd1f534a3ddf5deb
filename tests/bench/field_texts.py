"""340 texts as people in the field send them: of hikers, sailors, medics, drivers and rescuers
twelve each in five languages, four each in Greek and Arabic. Written for this: no table was ever
trained on them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.wire.text_code import pack

HIKERS = {
    "en": """
At the pass, wind is strong but fine
Camped by the lake, all good
Lost the trail in snow, going back to the hut
Anna twisted her knee, we need two more hours
Out of gas for the stove, can you leave some at the cabin?
Reached the summit 11:40, heading down
River too high to cross, staying on this side tonight
Change of plan: exit via the north valley, pick us up at the bridge
Battery at 15%, next message tomorrow at 8
Saw fresh avalanche debris on the east slope
Water source at km 14 is dry
Home by Sunday, feed the cat please
""",
    "de": """
Am Joch, starker Wind, sonst alles gut
Zelt steht am See, gute Nacht
Im Schnee den Weg verloren, gehen zurück zur Hütte
Anna hat sich das Knie verdreht, wir brauchen 2 Std länger
Gas ist alle, könnt ihr welches an der Alm lassen?
Gipfel um 11:40, steigen ab
Bach zu hoch zum Queren, bleiben heute auf dieser Seite
Planänderung: Abstieg durchs Nordtal, holt uns an der Brücke ab
Akku 15 %, nächste Nachricht morgen um 8
Frische Lawine am Osthang gesehen
Quelle bei km 14 ist trocken
Sonntag zu Hause, bitte Katze füttern
""",
    "fr": """
Au col, vent fort mais ça va
Bivouac au bord du lac, bonne nuit
Perdu le sentier dans la neige, on retourne au refuge
Anna s'est tordu le genou, il nous faut deux heures de plus
Plus de gaz pour le réchaud, pouvez-vous en laisser à la cabane ?
Sommet à 11h40, on descend
Rivière trop haute, on reste de ce côté cette nuit
Changement : sortie par la vallée nord, venez nous chercher au pont
Batterie 15 %, prochain message demain 8 h
Avalanche récente sur le versant est
La source du km 14 est à sec
Retour dimanche, nourris le chat stp
""",
    "es": """
En el collado, mucho viento pero bien
Acampados junto al lago, todo bien
Perdimos el sendero en la nieve, volvemos al refugio
Ana se torció la rodilla, necesitamos dos horas más
Sin gas para la cocina, ¿podéis dejar algo en la cabaña?
Cumbre a las 11:40, bajamos
El río va muy alto, nos quedamos de este lado
Cambio de plan: salimos por el valle norte, recógenos en el puente
Batería al 15 %, próximo mensaje mañana a las 8
Avalancha reciente en la ladera este
La fuente del km 14 está seca
En casa el domingo, da de comer al gato
""",
    "uk": """
На перевалі, сильний вітер, але все добре
Стоїмо табором біля озера, на добраніч
Загубили стежку в снігу, вертаємось до хатини
Аня підвернула коліно, треба ще дві години
Закінчився газ, залиште балон біля колиби
Вершина о 11:40, спускаємось
Річка зависока, ночуємо на цьому боці
Зміна плану: виходимо північною долиною, заберіть нас біля мосту
Батарея 15%, наступне повідомлення завтра о 8
Бачили свіжу лавину на східному схилі
Джерело на 14 км сухе
Будемо вдома в неділю, нагодуй кота
""",
    "el": """
Φτάσαμε στο διάσελο, δυνατός αέρας αλλά όλα καλά
Χάσαμε το μονοπάτι στο χιόνι, γυρνάμε στο καταφύγιο
Η Άννα στραμπούληξε το γόνατο, θέλουμε δύο ώρες ακόμα
Μπαταρία 15%, επόμενο μήνυμα αύριο στις 8
""",
    "ar": """
وصلنا إلى الممر، الريح قوية لكننا بخير
فقدنا المسار في الثلج ونعود إلى الكوخ
آنا لوت ركبتها، نحتاج ساعتين إضافيتين
البطارية 15%، الرسالة التالية غدا الساعة 8
""",
}
SAILORS = {
    "en": """
Anchored in the bay, wind NW 25 kn
ETA marina 18:00, need a berth for 12 m
Jib torn, continuing under main
Engine overheats, will sail the last 20 miles
Fog, visibility under 200 m, using horn
Fuel for two days, water for five
Gale warning received, turning to the lee of the island
Bilge pump runs every ten minutes, keeping watch
Please send weather for the next 48 h
Swell 3 m, crew seasick but ok
Autopilot is broken, steering by hand in turns
Saw a drifting container 4 miles west of us
""",
    "de": """
Vor Anker in der Bucht, Wind NW 25 kn
ETA Hafen 18:00, brauchen Platz für 12 m
Fock gerissen, weiter unter Gross
Motor wird zu heiss, letzte 20 Meilen unter Segel
Nebel, Sicht unter 200 m, geben Signal
Diesel für zwei Tage, Wasser für fünf
Sturmwarnung, laufen in Lee der Insel
Bilgepumpe läuft alle 10 Minuten, behalten es im Auge
Bitte Wetter für die nächsten 48 h
3 m Schwell, Crew seekrank, aber ok
Autopilot kaputt, steuern abwechselnd von Hand
Treibender Container 4 sm westlich von uns
""",
    "fr": """
Au mouillage dans la baie, vent NO 25 nds
ETA port 18h, besoin d'une place pour 12 m
Foc déchiré, on continue sous grand-voile
Moteur en surchauffe, 20 derniers milles à la voile
Brume, visibilité moins de 200 m
Gazole pour deux jours, eau pour cinq
Avis de coup de vent, on s'abrite derrière l'île
La pompe tourne toutes les 10 minutes, on surveille
Envoyez la météo des 48 h svp
Houle de 3 m, équipage malade mais ça va
Pilote en panne, on barre à tour de rôle
Conteneur à la dérive 4 milles à l'ouest
""",
    "es": """
Fondeados en la bahía, viento NO 25 nudos
ETA puerto 18:00, necesitamos amarre para 12 m
Foque roto, seguimos con la mayor
El motor se calienta, últimas 20 millas a vela
Niebla, visibilidad menos de 200 m
Gasoil para dos días, agua para cinco
Aviso de temporal, vamos a sotavento de la isla
La bomba de achique arranca cada 10 minutos
Mandad el tiempo para 48 h por favor
Mar de fondo de 3 m, tripulación mareada pero bien
Piloto automático roto, timón a mano por turnos
Contenedor a la deriva 4 millas al oeste
""",
    "uk": """
На якорі в бухті, вітер ПнЗх 25 вузлів
Прибуття в порт о 18:00, треба місце для 12 м
Порвали стаксель, ідемо під гротом
Двигун гріється, останні 20 миль під вітрилом
Туман, видимість до 200 м
Пального на два дні, води на п'ять
Штормове попередження, ховаємось за острів
Помпа вмикається кожні 10 хвилин, стежимо
Надішліть погоду на 48 годин
Хвиля 3 м, екіпаж захитало, але тримаємось
Автопілот зламався, кермуємо по черзі
Контейнер дрейфує за 4 милі на захід
""",
    "el": """
Αγκυροβολημένοι στον κόλπο, άνεμος ΒΔ 25 κόμβοι
Η μηχανή ζεσταίνεται, τα τελευταία 20 μίλια με πανιά
Ομίχλη, ορατότητα κάτω από 200 μ
Κύμα 3 μ, το πλήρωμα ζαλίζεται αλλά αντέχει
""",
    "ar": """
راسون في الخليج، الرياح شمالية غربية 25 عقدة
المحرك يسخن، سنكمل آخر 20 ميلا بالشراع
ضباب والرؤية أقل من 200 متر
وقود ليومين وماء لخمسة أيام
""",
}
MEDICS = {
    "en": """
Patient 1: BP 90/60, pulse 120, conscious
Need O neg blood, two units
Open fracture left tibia, splinted, morphine 5 mg at 14:10
Clinic has 30 patients waiting, send a second nurse
Insulin fridge failed, need ice today
Child, 4 years, fever 40.1 for two days, no rash
Three cases of cholera confirmed at site C
Evacuation by road, ETA hospital 16:45
Running low on saline and gloves
Pregnant woman, 38 weeks, contractions every 5 min
Wound cleaned and closed, tetanus given
Patient died 03:20, family informed
""",
    "de": """
Patient 1: RR 90/60, Puls 120, ansprechbar
Brauchen 0 neg Blut, zwei Konserven
Offene Fraktur linkes Schienbein, geschient, Morphin 5 mg um 14:10
30 Patienten warten, bitte zweite Pflegekraft
Kühlschrank fürs Insulin defekt, brauchen heute Eis
Kind, 4 Jahre, seit zwei Tagen 40,1 Fieber, kein Ausschlag
Drei Cholerafälle an Ort C bestätigt
Transport auf der Strasse, Klinik 16:45
Kochsalz und Handschuhe gehen aus
Schwangere, 38. Woche, Wehen alle 5 min
Wunde versorgt und genäht, Tetanus gegeben
Patient um 03:20 verstorben, Familie weiss es
""",
    "fr": """
Patient 1 : TA 90/60, pouls 120, conscient
Besoin de sang O négatif, deux poches
Fracture ouverte tibia gauche, attelle, morphine 5 mg à 14h10
30 patients attendent, envoyez une deuxième infirmière
Frigo insuline en panne, il faut de la glace aujourd'hui
Enfant 4 ans, fièvre 40,1 depuis deux jours
Trois cas de choléra confirmés au site C
Évacuation par la route, hôpital à 16h45
Bientôt plus de sérum ni de gants
Femme enceinte, 38 semaines, contractions toutes les 5 min
Plaie nettoyée et fermée, tétanos fait
Patient décédé à 3h20, famille prévenue
""",
    "es": """
Paciente 1: TA 90/60, pulso 120, consciente
Necesitamos sangre O negativo, dos unidades
Fractura abierta tibia izquierda, férula, morfina 5 mg a las 14:10
30 pacientes esperando, mandad otra enfermera
Nevera de insulina rota, hace falta hielo hoy
Niño de 4 años, fiebre 40,1 desde hace dos días
Tres casos de cólera confirmados en el sitio C
Evacuación por carretera, hospital 16:45
Queda poco suero y guantes
Embarazada, 38 semanas, contracciones cada 5 min
Herida limpia y cerrada, tétanos puesto
Paciente falleció 03:20, familia avisada
""",
    "uk": """
Пацієнт 1: тиск 90/60, пульс 120, притомний
Потрібна кров 0 негативна, дві дози
Відкритий перелом лівої гомілки, шина, морфін 5 мг о 14:10
30 пацієнтів чекають, надішліть ще медсестру
Холодильник з інсуліном зламався, сьогодні треба лід
Дитина 4 роки, 40,1 два дні, без висипу
Три випадки холери на ділянці С
Евакуація дорогою, лікарня о 16:45
Закінчуються фізрозчин і рукавички
Вагітна, 38 тижнів, перейми кожні 5 хв
Рану очищено і зашито, правець введено
Пацієнт помер о 03:20, родину повідомлено
""",
    "el": """
Ασθενής 1: πίεση 90/60, σφυγμοί 120, έχει τις αισθήσεις του
Χρειαζόμαστε αίμα 0 αρνητικό, δύο μονάδες
Παιδί 4 ετών, πυρετός 40,1 δύο μέρες, χωρίς εξάνθημα
Τελειώνουν ο ορός και τα γάντια
""",
    "ar": """
المريض 1: الضغط 90/60، النبض 120، واعٍ
نحتاج دم O سالب، وحدتين
طفل عمره 4 سنوات، حرارته 40.1 منذ يومين، بلا طفح
المحلول والقفازات على وشك النفاد
""",
}
DRIVERS = {
    "en": """
Stuck in mud at km 212, need a winch
Convoy of 6 left the depot 05:30
Border closed until Monday, waiting in line
Flat tyre, spare fitted, moving again
Delivered 18 pallets, signed by Osman
Road washed out after the second bridge
Truck 3 burns oil, limit to 60 km/h
Checkpoint asks for the letter from the ministry, please send
Fuel 140 l, enough to the next town
Overnight at the mission, guard is arranged
Broken windscreen, nobody hurt
Empty and on the way back, ETA 21:00
""",
    "de": """
Bei km 212 im Schlamm fest, brauchen Winde
Konvoi mit 6 Fahrzeugen um 05:30 los
Grenze bis Montag zu, stehen in der Schlange
Platten, Reserverad drauf, fahren weiter
18 Paletten geliefert, Osman hat unterschrieben
Strasse nach der zweiten Brücke weggespült
LKW 3 verbrennt Öl, höchstens 60 km/h
Kontrolle will den Brief vom Ministerium, bitte schicken
140 l Diesel, reicht bis zur nächsten Stadt
Übernachten bei der Mission, Wache steht
Frontscheibe kaputt, niemand verletzt
Leer auf dem Rückweg, ETA 21:00
""",
    "fr": """
Embourbés au km 212, il faut un treuil
Convoi de 6 parti du dépôt à 5h30
Frontière fermée jusqu'à lundi, on attend
Pneu crevé, roue changée, on repart
18 palettes livrées, signé par Osman
Route emportée après le deuxième pont
Le camion 3 consomme de l'huile, 60 km/h maxi
Le contrôle demande la lettre du ministère, envoyez svp
140 l de gazole, assez pour la prochaine ville
Nuit à la mission, gardien prévu
Pare-brise cassé, aucun blessé
À vide sur le retour, ETA 21h
""",
    "es": """
Atascados en el barro km 212, hace falta un cabrestante
Convoy de 6 salió del depósito a las 5:30
Frontera cerrada hasta el lunes, esperando
Pinchazo, rueda cambiada, seguimos
18 palés entregados, firmó Osman
Carretera cortada tras el segundo puente
El camión 3 quema aceite, máximo 60 km/h
En el control piden la carta del ministerio, mandadla
140 l de gasoil, llega hasta el próximo pueblo
Noche en la misión, hay guardia
Parabrisas roto, nadie herido
De vuelta sin carga, ETA 21:00
""",
    "uk": """
Застрягли в багні на 212 км, потрібна лебідка
Колона з 6 машин вийшла о 05:30
Кордон закрито до понеділка, стоїмо в черзі
Пробили колесо, поставили запаску, їдемо далі
Здали 18 палет, підписав Осман
Дорогу розмило за другим мостом
Вантажівка 3 їсть мастило, не більше 60 км/год
На блокпості просять лист з міністерства, надішліть
Пального 140 л, до міста вистачить
Ночуємо при місії, охорона є
Розбите лобове скло, постраждалих немає
Порожні, вертаємось, будемо о 21:00
""",
    "el": """
Κολλήσαμε στη λάσπη στο 212 χλμ, θέλουμε εργάτη
Τα σύνορα κλειστά μέχρι Δευτέρα, περιμένουμε στην ουρά
Παραδώσαμε 18 παλέτες, υπέγραψε ο Οσμάν
Ο δρόμος κόπηκε μετά τη δεύτερη γέφυρα
""",
    "ar": """
علقنا في الوحل عند الكيلومتر 212، نحتاج رافعة
الحدود مغلقة حتى الاثنين، ننتظر في الطابور
سلمنا 18 منصة ووقع عثمان
انجرف الطريق بعد الجسر الثاني
""",
}
RESCUERS = {
    "en": """
Team 2 on scene, two casualties, one red one yellow
Search sector B4 done, nothing found
Dog indicates at the collapsed stairwell, start digging
Need stretcher and four people at the gully
Helicopter landing site marked with orange panel
Contact by voice with one person under the slab
Night falls, stopping the search until 05:00
Rope team down, casualty secured
Water still rising, evacuate the lower street now
All 14 accounted for
Radio dead behind the ridge, use satellite only
Crew change at 22:00, send food for 9
""",
    "de": """
Team 2 vor Ort, zwei Verletzte, einer rot, einer gelb
Sektor B4 abgesucht, nichts gefunden
Hund zeigt am eingestürzten Treppenhaus an, beginnen zu graben
Brauchen Trage und vier Leute in der Rinne
Landeplatz mit orangem Tuch markiert
Rufkontakt mit einer Person unter der Platte
Es wird dunkel, Suche ruht bis 05:00
Seilteam unten, Verletzter gesichert
Wasser steigt weiter, untere Strasse sofort räumen
Alle 14 gefunden
Funk hinter dem Grat tot, nur Satellit
Ablösung um 22:00, bitte Essen für 9
""",
    "fr": """
Équipe 2 sur place, deux victimes, une rouge, une jaune
Secteur B4 fouillé, rien
Le chien marque à la cage d'escalier effondrée, on creuse
Besoin d'un brancard et de quatre personnes au couloir
Zone d'atterrissage marquée par panneau orange
Contact vocal avec une personne sous la dalle
La nuit tombe, recherche suspendue jusqu'à 5h
Équipe corde en bas, victime sécurisée
L'eau monte encore, évacuez la rue basse
Les 14 sont retrouvés
Radio morte derrière la crête, satellite seulement
Relève à 22h, repas pour 9 svp
""",
    "es": """
Equipo 2 en el lugar, dos heridos, uno rojo, uno amarillo
Sector B4 revisado, nada
El perro marca en la escalera derrumbada, empezamos a cavar
Hace falta camilla y cuatro personas en la canal
Zona de aterrizaje marcada con panel naranja
Contacto de voz con una persona bajo la losa
Anochece, paramos la búsqueda hasta las 5
Equipo de cuerda abajo, herido asegurado
El agua sigue subiendo, evacuad la calle baja
Los 14 localizados
Sin radio detrás de la cresta, solo satélite
Relevo a las 22, comida para 9
""",
    "uk": """
Група 2 на місці, двоє поранених, один червоний, один жовтий
Сектор Б4 оглянуто, нічого
Собака показує біля завалених сходів, починаємо копати
Потрібні ноші й четверо людей у кулуарі
Місце посадки позначено помаранчевим
Голосовий контакт з людиною під плитою
Темніє, пошук зупинено до 05:00
Мотузкова група внизу, потерпілого закріплено
Вода піднімається, евакуюйте нижню вулицю
Усіх 14 знайдено
За хребтом рації мовчать, тільки супутник
Зміна о 22:00, їжа на 9 осіб
""",
    "el": """
Η ομάδα 2 στο σημείο, δύο τραυματίες, ένας κόκκινος ένας κίτρινος
Ο τομέας Β4 ερευνήθηκε, τίποτα
Φωνητική επαφή με ένα άτομο κάτω από την πλάκα
Το νερό ανεβαίνει, εκκενώστε τώρα τον κάτω δρόμο
""",
    "ar": """
الفريق 2 في الموقع، مصابان، واحد أحمر وواحد أصفر
انتهى تفتيش القطاع ب4 ولم نجد شيئا
اتصال صوتي مع شخص تحت البلاطة
الماء يرتفع، أخلوا الشارع السفلي الآن
""",
}
FIELD_TEXTS: dict[str, tuple[str, ...]] = {
    language: tuple(
        text
        for people in (HIKERS, SAILORS, MEDICS, DRIVERS, RESCUERS)
        for text in people[language].strip().splitlines()
    )
    for language in HIKERS
}
"""By language."""


def packed_share(texts: Sequence[str]) -> float:
    """Return the bytes of the texts alone, packed where that is shorter, over those of UTF-8."""
    sent = [pack(text) for text in texts]
    sizes = [len(each if isinstance(each, bytes) else each.encode()) for each in sent]
    return sum(sizes) / sum(len(text.encode()) for text in texts)
