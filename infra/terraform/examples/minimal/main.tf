# The service watches the subscription it is deployed to.
module "service" {
  source = "../.."

  environment_name = "lifecycle"
  location         = "westeurope"
}
