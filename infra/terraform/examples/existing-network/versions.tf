terraform {
  required_version = ">= 1.9"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 5.2"
    }
  }
}

provider "azurerm" {
  features {}
  subscription_id     = var.subscription_id
  storage_use_azuread = true

  # Version 5 of the provider registers no resource provider automatically. The spelling must match Azure's list: another case
  # is skipped without a message.
  resource_providers_to_register = [
    "Microsoft.App",
    "Microsoft.AppConfiguration",
    "Microsoft.Communication",
    "Microsoft.EventGrid",
    "microsoft.insights",
    "Microsoft.KeyVault",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.OperationalInsights",
    "Microsoft.Storage",
    "Microsoft.Web",
  ]
}
