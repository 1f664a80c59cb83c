// The processors a session can be opened on when the driver is not asked for a list.
#pragma once

#include "remote.h"

static domain supported_domains[] = {{CDSP_DOMAIN_ID, "&_dom=cdsp"}, {CDSP1_DOMAIN_ID, "&_dom=cdsp1"}};
