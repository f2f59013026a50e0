module peers/offer

go 1.26.0
