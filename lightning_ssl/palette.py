"""The colours of every figure: Okabe and Ito's, which remain distinguishable with common colour-vision deficiencies."""

BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
BLACK, YELLOW = "#000000", "#F0E442"

# Black is not visible on a dark page, yellow not on white paper.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE)
