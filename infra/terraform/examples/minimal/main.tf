# The service monitors the subscription in which it is deployed.
module "service" {
  source = "../.."

  environment_name = var.environment_name
  location         = var.location
}
