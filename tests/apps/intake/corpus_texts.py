"""What the documents of the corpus say: people, places, values and sentences, in two languages."""

from __future__ import annotations

from typing import Final

PATIENTS: Final = {
    "en": (
        "Margaret Hughes",
        "Thomas Ellery",
        "Priya Nair",
        "Samuel Okafor",
        "Helen Whitford",
        "Daniel Marsh",
    ),
    "de": (
        "Sabine Krüger",
        "Jürgen Löffler",
        "Mehmet Yılmaz",
        "Käthe Weiß",
        "Florian Bäumler",
        "Annelie Großmann",
    ),
}
DOCTORS: Final = {
    "en": (
        "Dr Sarah Collins",
        "Dr James Pemberton",
        "Dr Alice Tran",
        "Dr Robert Fairley",
        "Prof Emma Lindqvist",
    ),
    "de": ("Dr. med. Anna Weber", "Dr. med. Jörg Schäfer", "Prof. Dr. med. Ute Brandt", "Dr. Stefan Müller"),
}
PLACES: Final = {
    "en": (
        "Riverside Pathology Laboratory",
        "Northfield General Hospital",
        "Elm Street Practice",
        "Harbour Radiology Clinic",
    ),
    "de": (
        "Labor am Stadtpark",
        "Klinikum Südhöhe",
        "Gemeinschaftspraxis Lindenallee",
        "Radiologie Zentrum Nordbad",
    ),
}
MONTHS: Final = {
    "en": [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
    "de": [
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ],
}

# code, English name, German name, English unit, German unit, symbol of each, low, high, decimals
ANALYTES: Final = (
    (
        "hemoglobin",
        "Haemoglobin",
        "Hämoglobin",
        ("g/L", "g/L"),
        ("g/dl", "g/dL"),
        (115, 165),
        (11.5, 16.5),
        (0, 1),
    ),
    (
        "leukocytes",
        "White cell count",
        "Leukozyten",
        ("x10^9/L", "10*9/L"),
        ("/nl", "10*9/L"),
        (4.0, 11.0),
        (4.0, 10.0),
        (1, 1),
    ),
    (
        "platelets",
        "Platelets",
        "Thrombozyten",
        ("x10^9/L", "10*9/L"),
        ("/nl", "10*9/L"),
        (150, 400),
        (150, 370),
        (0, 0),
    ),
    ("hematocrit", "Haematocrit", "Hämatokrit", ("%", "%"), ("%", "%"), (35, 47), (36, 48), (1, 1)),
    (
        "sodium",
        "Sodium",
        "Natrium",
        ("mmol/L", "mmol/L"),
        ("mmol/l", "mmol/L"),
        (135, 145),
        (136, 145),
        (0, 0),
    ),
    (
        "potassium",
        "Potassium",
        "Kalium",
        ("mmol/L", "mmol/L"),
        ("mmol/l", "mmol/L"),
        (3.5, 5.2),
        (3.5, 5.1),
        (1, 1),
    ),
    (
        "creatinine",
        "Creatinine",
        "Kreatinin",
        ("µmol/L", "umol/L"),
        ("mg/dl", "mg/dL"),
        (45, 90),
        (0.50, 0.95),
        (0, 2),
    ),
    ("urea", "Urea", "Harnstoff", ("mmol/L", "mmol/L"), ("mg/dl", "mg/dL"), (3.0, 8.0), (17, 43), (1, 0)),
    (
        "glucose",
        "Fasting glucose",
        "Glukose",
        ("mmol/L", "mmol/L"),
        ("mg/dl", "mg/dL"),
        (3.9, 5.5),
        (70, 100),
        (1, 0),
    ),
    (
        "cholesterol",
        "Total cholesterol",
        "Gesamtcholesterin",
        ("mmol/L", "mmol/L"),
        ("mg/dl", "mg/dL"),
        (3.0, 5.5),
        (120, 200),
        (1, 0),
    ),
    (
        "ldl_cholesterol",
        "LDL cholesterol",
        "LDL-Cholesterin",
        ("mmol/L", "mmol/L"),
        ("mg/dl", "mg/dL"),
        (1.0, 3.0),
        (60, 115),
        (1, 0),
    ),
    (
        "triglycerides",
        "Triglycerides",
        "Triglyceride",
        ("mmol/L", "mmol/L"),
        ("mg/dl", "mg/dL"),
        (0.5, 1.7),
        (40, 150),
        (1, 0),
    ),
    ("alt", "ALT", "GPT (ALT)", ("U/L", "U/L"), ("U/l", "U/L"), (5, 35), (10, 35), (0, 0)),
    ("ggt", "GGT", "Gamma-GT", ("U/L", "U/L"), ("U/l", "U/L"), (5, 35), (6, 40), (0, 0)),
    ("ferritin", "Ferritin", "Ferritin", ("µg/L", "ug/L"), ("ng/ml", "ug/L"), (30, 200), (15, 150), (0, 0)),
    ("tsh", "TSH", "TSH basal", ("mU/L", "mU/L"), ("mU/l", "mU/L"), (0.4, 4.0), (0.27, 4.20), (1, 2)),
    (
        "vitamin_b12",
        "Vitamin B12",
        "Vitamin B12",
        ("pmol/L", "pmol/L"),
        ("ng/l", "ng/L"),
        (150, 700),
        (191, 663),
        (0, 0),
    ),
    (
        "vitamin_d",
        "Vitamin D",
        "25-OH-Vitamin D",
        ("nmol/L", "nmol/L"),
        ("ng/ml", "ug/L"),
        (50, 150),
        (30, 70),
        (0, 0),
    ),
    (
        "calcium",
        "Calcium",
        "Calcium",
        ("mmol/L", "mmol/L"),
        ("mmol/l", "mmol/L"),
        (2.10, 2.60),
        (2.15, 2.55),
        (2, 2),
    ),
)

# code, English name, German name, doses
MEDICATIONS: Final = (
    ("metformin", "Metformin", "Metformin", ("500 mg", "850 mg", "1000 mg")),
    ("ramipril", "Ramipril", "Ramipril", ("2,5 mg", "5 mg", "10 mg")),
    ("amlodipine", "Amlodipine", "Amlodipin", ("5 mg", "10 mg")),
    ("bisoprolol", "Bisoprolol", "Bisoprolol", ("2,5 mg", "5 mg")),
    ("atorvastatin", "Atorvastatin", "Atorvastatin", ("20 mg", "40 mg")),
    ("pantoprazole", "Pantoprazole", "Pantoprazol", ("20 mg", "40 mg")),
    ("levothyroxine", "Levothyroxine", "Levothyroxin", ("50 µg", "75 µg", "100 µg")),
    ("acetylsalicylic_acid", "Aspirin", "ASS", ("100 mg",)),
    ("apixaban", "Apixaban", "Apixaban", ("2,5 mg", "5 mg")),
    ("torasemide", "Torasemide", "Torasemid", ("5 mg", "10 mg")),
    ("sertraline", "Sertraline", "Sertralin", ("50 mg", "100 mg")),
    ("prednisolone", "Prednisolone", "Prednisolon", ("5 mg", "20 mg")),
)
# as printed, and how the normalised fact says it
SCHEDULES: Final = {
    "en": (
        ("once daily", "1/day"),
        ("twice daily", "2/day"),
        ("three times a day", "3/day"),
        ("as needed", "as needed"),
    ),
    "de": (
        ("1-0-0", "1-0-0-0"),
        ("1-0-1", "1-0-1-0"),
        ("0-0-1", "0-0-1-0"),
        ("1-1-1", "1-1-1-0"),
        ("bei Bedarf", "as needed"),
    ),
}
# code, English, German
CONDITIONS: Final = (
    ("hypertension", "Arterial hypertension", "Arterielle Hypertonie"),
    ("diabetes_type_2", "Type 2 diabetes mellitus", "Diabetes mellitus Typ 2"),
    ("hypercholesterolemia", "Hypercholesterolaemia", "Hypercholesterinämie"),
    ("coronary_heart_disease", "Coronary heart disease", "Koronare Herzkrankheit"),
    ("atrial_fibrillation", "Atrial fibrillation", "Vorhofflimmern"),
    ("hypothyroidism", "Hypothyroidism", "Hypothyreose"),
    ("asthma", "Bronchial asthma", "Asthma bronchiale"),
    ("chronic_kidney_disease", "Chronic kidney disease", "Chronische Niereninsuffizienz"),
    ("reflux_disease", "Reflux disease", "Refluxkrankheit"),
    ("gout", "Gout", "Gicht"),
    ("osteoporosis", "Osteoporosis", "Osteoporose"),
)
# title, code, English finding, German finding
IMAGING: Final = (
    (
        ("Chest X-ray in two planes", "Röntgen Thorax in zwei Ebenen"),
        ("pneumonia", "Pneumonia", "Pneumonie"),
        "Consolidation in the right lower lobe. No pleural effusion. Heart size is normal.",
        "Verdichtung im rechten Unterlappen. Kein Pleuraerguss. Herzgröße im Normbereich.",
    ),
    (
        ("MRI of the right knee", "MRT des rechten Kniegelenks"),
        ("meniscal_tear", "Tear of the medial meniscus", "Innenmeniskusriss"),
        "Oblique signal in the posterior horn reaching the lower surface. Ligaments are intact.",
        "Schräge Signalerhöhung im Hinterhorn bis zur Unterfläche. Bänder intakt.",
    ),
    (
        ("Ultrasound of the abdomen", "Sonographie des Abdomens"),
        ("gallstones", "Gallstones", "Gallensteine"),
        "Several echogenic structures with shadowing. No evidence of appendicitis. Kidneys are normal.",
        "Mehrere echoreiche Strukturen mit Schallschatten. Kein Hinweis auf Appendizitis. Nieren unauffällig.",
    ),
    (
        ("CT of the lumbar spine", "CT der Lendenwirbelsäule"),
        ("disc_herniation", "Lumbar disc herniation", "Lumbaler Bandscheibenvorfall"),
        "Protrusion at L4/L5 with contact to the nerve root. Vertebral bodies are of normal height.",
        "Protrusion in Höhe L4/L5 mit Kontakt zur Nervenwurzel. Wirbelkörper normal hoch.",
    ),
)
VACCINES: Final = (
    ("vaccine_influenza", "Influenza vaccine", "Influenza-Impfstoff"),
    ("vaccine_tetanus_diphtheria", "Tetanus-diphtheria vaccine", "Tetanus-Diphtherie-Impfstoff"),
    ("vaccine_measles_mumps_rubella", "MMR vaccine", "MMR-Impfstoff"),
    ("vaccine_hepatitis_b", "Hepatitis B vaccine", "Hepatitis-B-Impfstoff"),
    ("vaccine_pneumococcal", "Pneumococcal vaccine", "Pneumokokken-Impfstoff"),
    ("vaccine_tick_borne_encephalitis", "TBE vaccine", "FSME-Impfstoff"),
)
COURSE: Final = {
    "en": (
        "The patient was admitted with shortness of breath and swelling of both legs. "
        "Under treatment the symptoms improved quickly and the weight fell by four kilograms. "
        "There was no evidence of pulmonary embolism. We recommend regular control of blood pressure."
    ),
    "de": (
        "Die stationäre Behandlung erfolgte wegen zunehmender Atemnot und Schwellung beider Beine. "
        "Unter Therapie besserten sich die Beschwerden rasch, das Gewicht sank um vier Kilogramm. "
        "Kein Hinweis auf Lungenembolie. Wir empfehlen regelmäßige Kontrollen."
    ),
}
