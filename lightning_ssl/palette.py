"""The colours of every figure."""

# Okabe and Ito's colours, which common colour-vision deficiencies leave distinguishable. Black is invisible on a dark
# page and yellow on white paper, so these two come last.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
