"""What a training run costs, told before there are devices to run it on."""
