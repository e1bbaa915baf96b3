variable "environment_name" {
  description = "Names the resource group (rg-...) and, with a short hash, every resource in it."
  type        = string

  validation {
    condition     = length(var.environment_name) >= 2 && length(var.environment_name) <= 20
    error_message = "environment_name must have 2 to 20 characters."
  }
}

variable "location" {
  description = "Region of every resource that has one."
  type        = string
}

variable "azure_cloud" {
  description = "Which Azure this is. Bicep knows it by itself; the provider does not say."
  type        = string
  default     = "AzureCloud"

  validation {
    condition     = contains(["AzureCloud", "AzureUSGovernment", "AzureChinaCloud"], var.azure_cloud)
    error_message = "azure_cloud must be AzureCloud, AzureUSGovernment or AzureChinaCloud."
  }
}

variable "watched_subscription_ids" {
  description = "Subscriptions to watch. Null: the one deployed to. Empty: a management group grants the permissions (watch/)."
  type        = list(string)
  default     = null

  validation {
    condition     = alltrue([for id in coalesce(var.watched_subscription_ids, []) : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "watched_subscription_ids must hold GUIDs in lower case."
  }
}

variable "rotation_resource_group_ids" {
  description = "Resource groups, as ids, whose apps and API Management the service may have take new values (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.rotation_resource_group_ids : can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+$", id))])
    error_message = "rotation_resource_group_ids must hold ids of resource groups: /subscriptions/.../resourceGroups/..."
  }
}

variable "literal_scan_subscription_ids" {
  description = "Subscriptions in which settings are compared with the values of secrets, to find copies (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.literal_scan_subscription_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "literal_scan_subscription_ids must hold GUIDs in lower case."
  }
}

variable "bootstrap_admin_username" {
  description = "User name of the first administrator. The password is made by make-secrets.ts and kept in the vault."
  type        = string
  default     = "admin"
}

variable "instance_memory_mb" {
  description = "Memory of an instance in MB."
  type        = number
  default     = 512

  validation {
    condition     = contains([512, 2048, 4096], var.instance_memory_mb)
    error_message = "instance_memory_mb must be 512, 2048 or 4096."
  }
}

variable "maximum_instance_count" {
  description = "Most instances at once."
  type        = number
  default     = 40

  validation {
    condition     = var.maximum_instance_count >= 40 && var.maximum_instance_count <= 1000
    error_message = "maximum_instance_count must be 40 to 1000."
  }
}

variable "always_ready_instances" {
  description = "Instances that always run for HTTP. 0 costs nothing while nobody calls."
  type        = number
  default     = 0

  validation {
    condition     = var.always_ready_instances >= 0 && var.always_ready_instances <= 20
    error_message = "always_ready_instances must be 0 to 20."
  }
}

variable "node_version" {
  description = "Major version of Node.js."
  type        = string
  default     = "22"

  validation {
    condition     = contains(["22", "24"], var.node_version)
    error_message = "node_version must be 22 or 24."
  }
}

variable "log_retention_days" {
  description = "Days that logs and metrics are kept."
  type        = number
  default     = 30

  validation {
    condition     = var.log_retention_days >= 30 && var.log_retention_days <= 730
    error_message = "log_retention_days must be 30 to 730."
  }
}

variable "operator_email_addresses" {
  description = "Who is told when the service itself has a problem. Empty: the alerts fire and tell nobody."
  type        = list(string)
  default     = []
}

variable "mail_enabled" {
  description = "Whether the service sends mail, through Communication Services with a domain that Azure manages."
  type        = bool
  default     = true
}

variable "mail_data_location" {
  description = "Geography in which mail is kept."
  type        = string
  default     = "Europe"
}

variable "alert_owner_domains" {
  description = "Domains, comma separated, whose addresses get the alerts of what a tag names them the owner of. Empty: tags are not believed."
  type        = string
  default     = ""
}

variable "mail_per_minute" {
  description = "Mails sent in any minute at most. Empty: 5, which Azure allows the domain that is deployed here."
  type        = string
  default     = ""
}

variable "mail_per_hour" {
  description = "Mails sent in any hour at most. Empty: 10, which Azure allows the domain that is deployed here."
  type        = string
  default     = ""
}

variable "app_configuration_enabled" {
  description = "Whether settings can also come from an App Configuration store."
  type        = bool
  default     = false
}

variable "network_enabled" {
  description = "Whether storage, vault and App Configuration are reachable through private endpoints only."
  type        = bool
  default     = false
}

variable "network_address_prefix" {
  description = "Address range of the virtual network, at least a /25."
  type        = string
  default     = "10.20.0.0/24"

  validation {
    condition     = can(cidrsubnet(var.network_address_prefix, 1, 1))
    error_message = "network_address_prefix must be a range such as 10.20.0.0/24."
  }
}

variable "license_secret_name" {
  description = "Name of a secret in the service vault that holds the licence. Empty: no licence."
  type        = string
  default     = ""
}

variable "entra_api_client_id" {
  description = "Application id of the registration as an API, whose access tokens of this tenant are taken. Empty: none."
  type        = string
  default     = ""
}

variable "entra_api_scope" {
  description = "Scope that access tokens of people must have, when not access_as_user. Empty: that one."
  type        = string
  default     = ""
}

variable "further_entra_tenant_ids" {
  description = "Tenants beside the one deployed to whose access tokens are taken, for a registration that is multi-tenant."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.further_entra_tenant_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "further_entra_tenant_ids must hold GUIDs in lower case."
  }
}

variable "public_base_url" {
  description = "Where people reach the service, when not at the app's own address: https://secrets.example.com. Empty: there."
  type        = string
  default     = ""
}

variable "private_target_hosts" {
  description = "Addresses in the private network, as host:port, that single sign-on and sync may call. Empty: public addresses only."
  type        = string
  default     = ""
}

variable "handover_key_vault_url" {
  description = "Address of the key vault that new secrets of applications are handed over in: https://name.vault.azure.net. Empty: none."
  type        = string
  default     = ""
}

variable "events_enabled" {
  description = "Whether Event Grid tells the service between scans when a key vault of a watched subscription is written or deleted."
  type        = bool
  default     = false
}

variable "log_analytics_workspace_ids" {
  description = "Workspaces, as their own GUIDs, in whose logs the service looks who reads the vaults (PRO). Each needs logs/."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.log_analytics_workspace_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "log_analytics_workspace_ids must hold GUIDs in lower case."
  }
}

variable "telemetry_endpoint" {
  description = "Address of an OpenTelemetry collector: https://collector.example.com:4318. Empty: none."
  type        = string
  default     = ""

  validation {
    condition     = var.telemetry_endpoint == "" || can(regex("^https?://[^/]+", var.telemetry_endpoint))
    error_message = "telemetry_endpoint must be an address: https://collector.example.com:4318."
  }
}

variable "telemetry_headers_secret_name" {
  description = "Name of a secret in the service vault that holds the collector's headers, as name=value pairs. Empty: none."
  type        = string
  default     = ""
}

variable "additional_settings" {
  description = "Further app settings by name, such as schedules and limits (docs/deploy.md). No secret: give a reference to the vault."
  type        = map(string)
  default     = {}
}
