# The service monitors the subscription in which it is deployed.
module "service" {
  source = "../.."

  environment_name = "lifecycle"
  location         = "westeurope"
}
