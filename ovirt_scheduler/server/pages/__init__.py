"""What a browser, Prometheus and a load balancer read: pages, their JSON, metrics, health.

``daemon`` imports it, and gives the server its routes and its methods. It imports ``history`` and
what lies below that; jinja2 and prometheus_client are loaded at the first request that needs them.
"""
